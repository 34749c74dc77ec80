"""`-c` of `workings eval`: settings of an evaluation, or of a training run to be measured again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workings.cli.saved_models import find_saved_model
from workings.config.compose import Composition, compose_with_notes
from workings.config.dump import dump_yaml
from workings.config.evaluation import EvalConfig
from workings.config.evaluation_of_run import evaluation_of, validation_dataset
from workings.config.kinds import TrainingRun
from workings.config.sources import kind_of
from workings.errors import ConfigError

TRAINING = ("sft", "grpo", "expert-iteration")


def compose_evaluation(names_or_files: Sequence[str], overrides: Sequence[str]) -> Composition:
    """The evaluation that files and overrides describe.

    Where the first file is that of a training run, the evaluation is the run's own, on its
    validation rows. A folder (`-c RUN`, `-c RUN/checkpoints/step_000010`) stands for the model in
    it, a file for settings alone; `model.name_or_path` names any other model.
    """
    kind = _kind(names_or_files)
    if kind not in TRAINING:
        return compose_with_notes(names_or_files, overrides, kind="eval")
    first, *later = names_or_files
    trained = compose_with_notes([first], kind=kind)
    assert isinstance(trained.run, TrainingRun)
    own_dataset = validation_dataset(trained.run)
    base, where = _with_saved_model(
        evaluation_of(trained.run, own_dataset or trained.run.data.train), Path(first).expanduser()
    )
    composition = _refined(base, later, overrides)
    notes = [*trained.notes, *composition.notes]
    run = composition.run
    assert isinstance(run, EvalConfig)
    if run.datasets != base.datasets:
        run = EvalConfig.model_validate({**run.model_dump(), "held_out": None})
    elif own_dataset is None:
        raise ConfigError(
            f"the {kind} run {trained.run.name!r} has no validation rows to evaluate on",
            hint="name other data sets, e.g. datasets=[gsm8k]",
        )
    if run.model.name_or_path == base.model.name_or_path:
        notes.append(f"model: {run.model.name_or_path}, {where}")
        if run.model.adapter is None:
            run = _with_adapter(run, base.model.adapter)
    if run.name == base.name:
        run = run.model_copy(update={"name": f"{run.name}/{_short_name(run)}"})
    return replace(composition, run=run, notes=tuple(notes))


def _kind(names_or_files: Sequence[str]) -> str:
    """What the first file describes; one that does not say, or is not there, is an evaluation."""
    try:
        return kind_of(names_or_files[0]) if names_or_files else "eval"
    except ConfigError:
        return "eval"


def _with_saved_model(base: EvalConfig, source: Path) -> tuple[EvalConfig, str]:
    """The evaluation of the model that the folder `source` holds, and what model that is."""
    saved = find_saved_model(source) if source.is_dir() else None
    if saved is None:
        return base, (
            "which the run starts from; model.name_or_path=FOLDER or -c FOLDER takes a saved one"
        )
    model = base.model.model_copy(update={"name_or_path": str(saved.folder), "adapter": None})
    return base.model_copy(update={"model": model}), saved.what


def _with_adapter(run: EvalConfig, adapter: str | None) -> EvalConfig:
    model = run.model.model_copy(update={"adapter": adapter})
    return run.model_copy(update={"model": model})


def _refined(base: EvalConfig, later: Sequence[str], overrides: Sequence[str]) -> Composition:
    """`base` with later files and overrides, as if it had been written in a file.

    The adapter belongs to the base's model and not to one that is named instead of it.
    """
    with tempfile.TemporaryDirectory(prefix="workings-") as folder:
        file = Path(folder, "evaluation.yaml")
        file.write_text(dump_yaml(_with_adapter(base, None)), encoding="utf-8")
        return compose_with_notes([str(file), *later], overrides, kind="eval")


def _short_name(run: EvalConfig) -> str:
    """A folder's name for the model: the last part of its path or hub id."""
    return Path(run.model.adapter or run.model.name_or_path).name or "model"
