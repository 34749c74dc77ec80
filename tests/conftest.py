"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: `WORKINGS_DATA_DIR`, else `../shared/data` beside the clone."""
    named = os.environ.get("WORKINGS_DATA_DIR")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data sets: WORKINGS_DATA_DIR is unset and {folder} does not exist")
    return folder
