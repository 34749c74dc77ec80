"""Which model a folder stands for: the folder itself, or the best answer of a run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workings.models.checkpoint import latest_checkpoint

MODEL_FILES = ("config.json", "adapter_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model folder, and in words what it is to the folder that was asked about."""

    folder: Path
    what: str


def find_saved_model(folder: Path) -> SavedModel | None:
    """The model of a folder: the folder, else its final, best or latest checkpoint; else None.

    Both layouts of a run's folder are known. A damaged checkpoint is passed over.
    """
    if holds_model(folder):
        return SavedModel(folder=folder, what="the saved model")
    for name, what in (("final", "final"), ("best", "best"), ("best_model", "best")):
        if holds_model(folder / name):
            return SavedModel(folder=folder / name, what=f"the run's {what} model")
    for root in (folder / "checkpoints", folder):
        latest = latest_checkpoint(root)
        if latest.path is not None:
            return SavedModel(folder=latest.path, what="the run's latest checkpoint")
    return None


def holds_model(folder: Path) -> bool:
    """True for a folder with a model or an adapter in it."""
    return any((folder / name).is_file() for name in MODEL_FILES)
