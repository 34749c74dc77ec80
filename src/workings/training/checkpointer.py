"""Saving and resuming a run. A checkpoint is whole or absent, and holds all that a step needs.

checkpoints/step_000012/   weights (LoRA: the adapter), tokenizer, optimizer.pt,
                           trainer_state.json, config.yaml, manifest.json
best/                      the policy at its best validation (step 0: the start), with best.json
final/                     the policy at the end
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from workings.errors import AlreadyFinished, CheckpointError
from workings.models.checkpoint import (
    checkpoint_folders,
    latest_checkpoint,
    prune_checkpoints,
    verify_checkpoint,
    write_checkpoint,
)
from workings.models.restore import restore_policy
from workings.models.save import save_policy
from workings.models.tensors import load_tensors, save_tensors
from workings.tracking.recorder import Recorder
from workings.training.offloaded_adamw import OffloadedAdamW
from workings.training.state import TrainerState

OPTIMIZER, STATE, BEST = "optimizer.pt", "trainer_state.json", "best.json"
Layout = Literal["default", "classic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaths:
    """Where a run keeps its models, below its folder."""

    folder: Path
    layout: Layout = "default"

    @property
    def checkpoints(self) -> Path:
        """Parent of the step folders."""
        return self.folder if self.layout == "classic" else self.folder / "checkpoints"

    @property
    def best(self) -> Path:
        """The policy at its best validation."""
        return self.folder / ("best_model" if self.layout == "classic" else "best")

    @property
    def final(self) -> Path:
        """The policy at the end."""
        return self.folder / "final"

    def step(self, number: int) -> Path:
        """The checkpoint of a step."""
        name = f"checkpoint-{number}" if self.layout == "classic" else f"step_{number:06d}"
        return self.checkpoints / name


class Checkpointer:
    """Writes and reads the checkpoints of one run.

    `resume` is None for a run from the start, "latest", or the folder of a checkpoint. A damaged
    checkpoint is refused; with "latest" the one before it is used, and a warning says so. `at_end`
    is whether a run's end is saved.
    """

    def __init__(
        self,
        paths: RunPaths,
        tokenizer: Any,
        recorder: Recorder,
        *,
        kind: str,
        config_text: str,
        resume: str | None = None,
        save_total_limit: int = 2,
        keep_best: bool = True,
        at_end: bool = True,
        model_card: str = "",
    ) -> None:
        self.paths = paths
        self._tokenizer = tokenizer
        self._recorder = recorder
        self._kind = kind
        self._config_text = config_text
        self._resume = resume
        self._save_total_limit = save_total_limit
        self._keep_best = keep_best
        self.at_end = at_end
        self._model_card = model_card
        self._saved: TrainerState | None = None
        self._looked = False
        self._found: Path | None = None
        self._restored_from: Path | None = None

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> TrainerState | None:
        """The state resumed from, its weights and optimizer in place; None from the start.

        A run that was to resume but has no whole checkpoint yet starts from the beginning, with a
        warning: it was stopped before its first one.
        """
        folder = self._resume_folder()
        if folder is None:
            return None
        state = TrainerState.read(folder / STATE, kind=self._kind)
        restore_policy(model, folder)
        # Through CPU memory: a state belongs on the device only where the optimizer keeps it there.
        copied = isinstance(optimizer, OffloadedAdamW) or next(model.parameters()).is_cuda
        stored = load_tensors(folder / OPTIMIZER, mmap=copied)
        try:
            optimizer.load_state_dict(stored)  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{folder / OPTIMIZER} does not fit this model: {error}",
                hint="resume with the settings of the run's own config.yaml",
            ) from error
        self._restored_from = folder
        self._recorder.log(f"resumed from {folder}")
        return state

    def stored_state(self) -> TrainerState | None:
        """The state that `restore` gives back, for what has to be known before it."""
        folder = self._resume_folder()
        return None if folder is None else TrainerState.read(folder / STATE, kind=self._kind)

    def restored_file(self, name: str) -> dict[str, Any] | None:
        """What `save` stored as the extra file `name`, of the checkpoint that was resumed from."""
        if self._restored_from is None or not (self._restored_from / name).is_file():
            return None
        values = load_tensors(self._restored_from / name)
        assert isinstance(values, dict), "save writes dictionaries"
        return values

    def save(
        self,
        state: TrainerState,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        extra: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write the checkpoint of `state.step`, then remove the oldest beyond the limit.

        `extra` are further files by name, of tensors and plain values (a replay buffer).
        A state that was the last one saved stands already: the end of a run may fall on a step
        that is saved anyway.
        """
        if state == self._saved:
            return

        def write(folder: Path) -> None:
            save_policy(model, self._tokenizer, folder, trained=False)
            save_tensors(folder / OPTIMIZER, _plain(optimizer.state_dict()))
            state.write(folder / STATE)
            (folder / "config.yaml").write_text(self._config_text, encoding="utf-8")
            for name, values in (extra or {}).items():
                save_tensors(folder / name, dict(values))

        write_checkpoint(self.paths.step(state.step), write)
        best = [] if state.best_step is None else [self.paths.step(state.best_step)]
        prune_checkpoints(
            self.paths.checkpoints,
            save_total_limit=self._save_total_limit,
            keep=[folder for folder in best if folder.is_dir()],
        )
        self._saved = state

    def keep_best(self, state: TrainerState, model: nn.Module) -> None:
        """Store the policy as the best, where this step has the best validation so far."""
        if self._keep_best and state.best_step == state.step:
            best = {"step": state.step, "value": state.best_value}
            self._write_policy(model, self.paths.best, {BEST: json.dumps(best) + "\n"})

    def tell_of_start(self, state: TrainerState) -> None:
        """Log that `best/` holds the policy that the run began with, where it does."""
        if not self._keep_best or state.best_step != 0 or state.step == 0:
            return
        stored = self.paths.best / BEST
        # Not where the start was measured without keeping it, or a resumed run went back to it.
        if stored.is_file() and json.loads(stored.read_text(encoding="utf-8"))["step"] == 0:
            self._recorder.log(
                f"no evaluation was better than the start's: {self.paths.best} holds the policy of "
                "step 0, before training"
            )

    def save_final(self, model: nn.Module) -> None:
        """Store the policy as the run's result."""
        self._write_policy(model, self.paths.final, {})

    def refuse_if_finished(self, state: TrainerState, *, done: bool) -> None:
        """Raise AlreadyFinished where a resumed run has its result and nothing left to do."""
        if self._resume is not None and done and self.paths.final.is_dir():
            raise AlreadyFinished(
                f"the run in {self.paths.folder} is finished: it stopped at step {state.step}",
                hint="raise max_steps to go on, or choose another name= for a new run",
            )

    def _resume_folder(self) -> Path | None:
        """The checkpoint to resume from, looked for once; None from the start."""
        if self._resume is not None and not self._looked:
            self._looked = True
            self._found = self._find_folder()
            if self._found is None:
                self._recorder.warn("no checkpoint to resume from yet; starting from the beginning")
        return self._found

    def _find_folder(self) -> Path | None:
        if self._resume == "latest":
            latest = latest_checkpoint(self.paths.checkpoints)
            for line in latest.skipped:
                self._recorder.warn(line)
            if latest.path is None and latest.skipped:
                raise CheckpointError(
                    f"no checkpoint in {self.paths.checkpoints} is whole",
                    hint="start again under another name=",
                )
            return latest.path
        folder = Path(str(self._resume)).expanduser()
        if not folder.is_dir():
            known = ", ".join(p.name for _, p in checkpoint_folders(self.paths.checkpoints))
            raise CheckpointError(
                f"there is no checkpoint {folder}", hint=f"this run has: {known or 'none'}"
            )
        verify_checkpoint(folder)
        return folder

    def _write_policy(self, model: nn.Module, folder: Path, files: dict[str, str]) -> None:
        def write(target: Path) -> None:
            save_policy(model, self._tokenizer, target, trained=False)
            for name, text in {"README.md": self._model_card, **files}.items():
                if text:
                    (target / name).write_text(text, encoding="utf-8")

        write_checkpoint(folder, write)


def _plain(value: Any) -> Any:
    """The same with tuples and dictionaries of plain kinds, for `save_tensors`."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
