"""Which model a folder stands for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workings.cli.saved_models import find_saved_model


def _model(folder: Path, name: str = "config.json") -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text("{}")
    return folder


def test_a_model_or_an_adapter_stands_for_itself(tmp_path: Path) -> None:
    for name in ("config.json", "adapter_config.json"):
        folder = _model(tmp_path / name.partition(".")[0], name)
        saved = find_saved_model(folder)
        assert saved is not None
        assert (saved.folder, saved.what) == (folder, "the saved model")


@pytest.mark.parametrize("best", ["best", "best_model"])
def test_final_before_best(best: str, tmp_path: Path) -> None:
    _model(tmp_path / best)
    saved = find_saved_model(tmp_path)
    assert saved is not None
    assert (saved.folder, saved.what) == (tmp_path / best, "the run's best model")
    _model(tmp_path / "final")
    saved = find_saved_model(tmp_path)
    assert saved is not None
    assert saved.folder == tmp_path / "final"


@pytest.mark.parametrize("place", ["checkpoints/step_{:06d}", "checkpoint-{}"])
def test_the_latest_whole_checkpoint_in_both_layouts(
    place: str, grpo_run: Path, tmp_path: Path
) -> None:
    for step in (1, 2):
        checkpoint = grpo_run / "checkpoints" / f"step_{step:06d}"
        shutil.copytree(checkpoint, tmp_path / place.format(step))
    (tmp_path / place.format(3)).mkdir()
    saved = find_saved_model(tmp_path)
    assert saved is not None
    assert saved.folder == tmp_path / place.format(2)


def test_nothing_is_saved(tmp_path: Path) -> None:
    assert find_saved_model(tmp_path) is None
