"""`workings eval`: one model or a grid of them on one or more data sets, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from workings.cli.build import build_grader, build_recorder
from workings.cli.console import write_data, write_note
from workings.cli.evaluation.grid import Cell, grid_table
from workings.cli.evaluation.plan import (
    Action,
    action,
    check_folder,
    dataset_names,
    describe_stored,
    discard,
    planned,
    refuse_other_runs,
    stored_data_sets,
)
from workings.cli.evaluation.report import evaluation_report
from workings.cli.evaluation.run import EvaluationRun, Models, try_out
from workings.cli.folders import open_folder, run_folder
from workings.config.dump import resolved
from workings.config.evaluation import EvalConfig
from workings.errors import ConfigError, DataError
from workings.evaluation.summary_tables import SUMMARY_CSV, write_metrics_summary
from workings.tracking.alone import run_alone


def run(
    config: EvalConfig,
    *,
    resume: str | None = None,
    fresh: bool = False,
    cells: Sequence[Cell] = (),
) -> int:
    """Evaluate on every data set; the table goes to stdout, the files into the run's folder.

    With `resume` what was sampled with the same settings is not sampled again, and responses whose
    reward alone has changed are graded again; `fresh` removes them, once the (first) model and the
    data have loaded. `cells` are evaluated in the place of `config`, one folder each, below the
    folder that `config` names. No other process can evaluate into these folders meanwhile.
    """
    if resume not in (None, "latest"):
        raise ConfigError(
            f"--resume {resume}: an evaluation has no checkpoints",
            hint="--resume alone goes on with the evaluation that name and output_dir say",
        )
    if resume and fresh:
        raise ConfigError("--resume and --fresh contradict each other", hint="give one of them")
    configs = [cell.config for cell in cells] or [config]
    if cells and config.layout != "classic":  # whose cells lie in the folder of all runs
        refuse_other_runs(cells[0].root)
    found = []
    with ExitStack() as held, closing(Models()) as models:
        works = [_plan(one, held, resume=resume is not None, fresh=fresh) for one in configs]
        said = _begin_anew(works, models) if fresh else []
        for number, work in enumerate(works, start=1):
            if cells:
                write_note(f"cell {number} of {len(works)}: {work.config.name}")
            found.append(_evaluate(work, models, resume=resume is not None, said=said))
            said = []
        if cells:
            tree = cells[0].root
            write_data(grid_table(list(zip(cells, found, strict=True))))
        else:
            tree = run_folder(config)
            if found[0]:
                write_data(evaluation_report(found[0]))
        if any(found):
            _summarise(tree)
    write_note(f"every number and response is in {tree}")
    return 0


class _Work:
    """A configuration, and what is left to do for each of its data sets."""

    def __init__(
        self, config: EvalConfig, names: list[str], settings: list[dict[str, Any]]
    ) -> None:
        self.config = config
        self.folder = run_folder(config)
        self.existed = self.folder.is_dir()
        self.names = names
        self.settings = settings
        self.todo: list[Action] = ["sample"] * len(names)


def _plan(config: EvalConfig, held: ExitStack, *, resume: bool, fresh: bool) -> _Work:
    """The work, its folder held; what cannot be gone on with is an error before a model loads."""
    work = _Work(config, dataset_names(config), planned(config))
    refuse_other_runs(work.folder, work.names)
    held.enter_context(run_alone(work.folder))
    check_folder(work.folder, work.names, asked=resume or fresh)
    if resume:
        work.todo = [
            action(work.folder / name, settings)
            for name, settings in zip(work.names, work.settings, strict=True)
        ]
    return work


def _begin_anew(works: Sequence[_Work], models: Models) -> list[str]:
    """Remove earlier results, and return what was said while the model loaded.

    All of them go at once, so that none is taken for a new one if this start is killed; but not
    before the first model and its data have loaded, so that a mistyped name loses nothing.
    """
    said: list[str] = []
    if any(work.existed for work in works):
        try_out(works[0].config, works[0].names, models=models, log=said.append)
        for work in works:
            found = stored_data_sets(work.folder, work.names)
            if found:
                write_note(f"--fresh replaces {describe_stored(found)} in {work.folder}")
            for name in work.names:
                discard(work.folder / name)
    return said


def _evaluate(
    work: _Work, models: Models, *, resume: bool, said: Sequence[str]
) -> list[dict[str, Any]]:
    """The summaries of a configuration's data sets, those that a judge decides about left out.

    `said` are lines for the log from before it was opened.
    """
    config = work.config
    _, notes = open_folder(config, resume="latest")
    for note in notes if resume else ():
        write_note(note)
    recorder = build_recorder(
        config.tracking, work.folder, name=config.kind, total_steps=0, settings=resolved(config)
    )
    summaries = []
    with recorder, build_grader(config.grader) as grader:
        recorder.truncate_after(-1)
        for line in said:
            recorder.log(line)
        one = EvaluationRun(config, work.folder, models=models, grader=grader, recorder=recorder)
        for place, dataset in enumerate(config.datasets):
            summary = one.evaluate(
                dataset, work.names[place], settings=work.settings[place], todo=work.todo[place]
            )
            if summary is not None:
                summaries.append(summary)
                metrics = summary["metrics"].items()
                row = {f"{work.names[place]}/{metric}": value for metric, value in metrics}
                recorder.record(0, row, prefix="eval")
        path = one.write_artefact(work.names)
        if path is not None:
            recorder.log(f"the whole evaluation is in {path}")
    return summaries


def _summarise(tree: Path) -> None:
    """Every summary below `tree` in one table, beside them."""
    try:
        write_metrics_summary(tree)
    except DataError as error:  # two cells that the pivot cannot tell apart
        write_note(f"{SUMMARY_CSV} has every evaluation, but there is no pivot: {error.message}")
