"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

THREADS = torch.get_num_threads()


@pytest.fixture(autouse=True)
def _threads_as_at_the_start() -> Iterator[None]:
    """A run with `num_threads` sets them for its whole process, here that of all tests.

    Sums depend on them in their last bits, and tests compare runs of this process bit for bit with
    those of processes of their own.
    """
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(THREADS)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: `WORKINGS_DATA_DIR`, else `../shared/data` beside the clone."""
    named = os.environ.get("WORKINGS_DATA_DIR")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data sets: WORKINGS_DATA_DIR is unset and {folder} does not exist")
    return folder
