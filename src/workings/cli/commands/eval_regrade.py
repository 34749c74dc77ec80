"""`workings eval --regrade FOLDER`: stored responses graded again. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workings.cli.console import write_data, write_note
from workings.cli.evaluation.plan import (
    OF_THE_REWARD,
    ON_RECORD,
    dataset_names,
    evaluation_reward,
    evaluation_seed,
    planned_settings,
    stored_settings,
)
from workings.cli.evaluation.report import evaluation_report
from workings.cli.light_parts import build_grader
from workings.config.compose import compose
from workings.config.evaluation import EvalConfig
from workings.errors import ConfigError, DataError
from workings.evaluation.evaluate import regrade
from workings.evaluation.reports import SUMMARY_FILE, read_summary, write_results
from workings.evaluation.responses import ResponseStore, differing_values
from workings.evaluation.summary_tables import write_metrics_summary
from workings.grading.grader import Grader
from workings.tracking.alone import run_alone

CONFIG = "config.yaml"
LEFT_OUT = OF_THE_REWARD | ON_RECORD | {"backend", "eos_token"}


def run(folder: Path, overrides: Sequence[str]) -> int:
    """Grade the responses below `folder` under its own settings and `overrides` of the reward.

    A grid's folder is graded cell by cell. Other settings than the reward's and the grader's are
    refused, because the responses depend on them.
    """
    evaluations = [_Stored.read(one, overrides) for one in _folders(folder)]
    with ExitStack() as held:
        for one in evaluations:
            held.enter_context(run_alone(one.folder, instead=None))
        for one in evaluations:
            summaries = one.grade()
            if len(evaluations) > 1:
                write_note(str(one.folder))
            write_data(evaluation_report(summaries))
        write_metrics_summary(folder)
    write_note(f"graded again, without a model, in {folder}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """An evaluation whose responses are all there."""

    folder: Path
    config: EvalConfig
    names: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path, overrides: Sequence[str]) -> _Stored:
        """What `folder` holds; ConfigError or DataError where it cannot be graded again."""
        before = compose([str(folder / CONFIG)], kind="eval")
        config = compose([str(folder / CONFIG)], overrides, kind="eval")
        changed = differing_values(
            before.model_dump(mode="json"),
            config.model_dump(mode="json"),
            leave_out={"reward", "grader"},
        )
        if changed:
            raise ConfigError(
                f"stored responses do not change with {changed[0]}",
                hint="with --regrade only reward... and grader... may be given",
            )
        names = [
            name
            for name, dataset in zip(dataset_names(config), config.datasets, strict=True)
            if not dataset.is_judged
        ]
        waiting = [name for name in names if not ResponseStore(folder / name).complete]
        if waiting:
            raise DataError(
                f"{folder} has not all responses for {', '.join(waiting)}",
                hint="workings eval with the same settings and --resume samples the rest",
            )
        return cls(folder=folder, config=config, names=tuple(names))

    def grade(self) -> list[dict[str, Any]]:
        """The new summaries, which are written beside the responses."""
        with build_grader(self.config.grader) as grader:
            return [self._grade(name, grader) for name in self.names]

    def _grade(self, name: str, grader: Grader) -> dict[str, Any]:
        target = self.folder / name
        place = dataset_names(self.config).index(name)
        stored = dict(stored_settings(target) or {})
        if (target / SUMMARY_FILE).is_file():
            stored |= read_summary(target).get("settings", {})
        reward = evaluation_reward(self.config, grader, eos_token=stored.get("eos_token"))
        wanted = planned_settings(self.config, self.config.datasets[place], reward)
        result = regrade(self.folder, reward, dataset=name, seed=evaluation_seed(self.config))
        of_the_reward = {key: wanted[key] for key in (*OF_THE_REWARD, *ON_RECORD)}
        write_results(self.folder, result, settings={**wanted, **stored, **of_the_reward})
        return read_summary(target)


def _folders(folder: Path) -> list[Path]:
    """The folder itself, or the cells of a grid below it."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}", hint="workings eval writes runs/NAME")
    if (folder / CONFIG).is_file():
        return [folder]
    found = sorted(file.parent for file in folder.rglob(CONFIG))
    if not found:
        raise DataError(
            f"{folder} is no evaluation: there is no {CONFIG} in or below it",
            hint="workings grade FILE grades responses without settings",
        )
    return found
