"""What a folder holds: training runs, evaluations, and files of responses, newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workings.evaluation.reports import RESULTS_FILE, SUMMARY_FILE
from workings.evaluation.responses import RESPONSES_FILE
from workings.evaluation.stored_evaluations import IN_A_RUN, STEP_FOLDER
from workings.tracking.jsonl import FILE_NAME as METRICS_FILE
from workings.viewer.beside import DECODED, FLAT
from workings.viewer.files import ROLLOUTS_FOLDER, is_result_file, modified, walk
from workings.viewer.whole_run import WHOLE_RUN, time_of

SEPARATOR = " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A folder with `metrics.jsonl`.

    Attributes:
        name: path relative to the root, "." for the root itself.
        label: what it is called on the page.
        time: of its last change, in seconds since the epoch.
    """

    name: str
    label: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file of responses, or the summary of an evaluation on one data set.

    Attributes:
        name: path relative to the root.
        label: what it is called on the page: evaluation or run, then data set or step.
        evaluation: label without the data set; "" for rollouts.
        dataset: "" for rollouts, and for files that may hold several.
        time: of its last change, in seconds since the epoch.
    """

    name: str
    label: str
    evaluation: str
    dataset: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything that can be looked at, each newest first."""

    runs: tuple[FoundRun, ...]
    responses: tuple[FoundFile, ...]
    summaries: tuple[FoundFile, ...]

    def run(self, name: str) -> FoundRun | None:
        """The run of this name."""
        return next((one for one in self.runs if one.name == name), None)

    def response_file(self, name: str) -> FoundFile | None:
        """The file of responses of this name."""
        return next((one for one in self.responses if one.name == name), None)


def discover(root: Path) -> Found:
    """What is below `root`; hidden files and what is behind links to elsewhere is left out."""
    runs, responses, summaries = [], [], []
    title = root.resolve().name
    for where, names in walk(root):
        if METRICS_FILE in names:
            path = where / METRICS_FILE
            label = _folder_label(where, title)
            runs.append(FoundRun(name=str(where), label=label, time=modified(root / path)))
        for name in names:
            if is_result_file(where, name, names):
                responses.append(_found(root, where, name, title))
            if name == SUMMARY_FILE and (RESULTS_FILE in names or RESPONSES_FILE in names):
                summaries.append(_found(root, where, name, title))
    return Found(
        runs=tuple(sorted(runs, key=_newest_first)),
        responses=tuple(sorted(responses, key=_newest_first)),
        summaries=tuple(sorted(summaries, key=_newest_first)),
    )


def _newest_first(one: FoundRun | FoundFile) -> tuple[float, str]:
    return -one.time, one.name


def _found(root: Path, where: PurePosixPath, name: str, title: str) -> FoundFile:
    path = where / name
    if where.name == ROLLOUTS_FOLDER and name.endswith(".parquet"):
        run = _folder_label(where.parent, title)
        match = STEP_FOLDER.fullmatch(path.stem)
        step = f"step {int(match[1])}" if match else path.stem
        label, evaluation, dataset = f"{run}{SEPARATOR}rollouts{SEPARATOR}{step}", "", ""
    elif WHOLE_RUN.fullmatch(name):
        step_folder = STEP_FOLDER.fullmatch(where.name)
        evaluation, dataset = _folder_label(where, title), ""
        if step_folder is not None:
            run = _folder_label(where.parent, title)
            evaluation = f"{run}{SEPARATOR}step {int(step_folder[1])}"
        label = f"{evaluation}{SEPARATOR}{time_of(name)}"
    elif name.endswith(FLAT) and name != RESULTS_FILE:
        stem = name.removesuffix(DECODED).removesuffix(FLAT)
        evaluation, dataset = _folder_label(where, title), ""
        label = f"{evaluation}{SEPARATOR}{stem}"
        if name.endswith(DECODED):
            label += f"{SEPARATOR}not graded"
    else:
        dataset = where.name or title
        evaluation = _evaluation_label(where.parent, title) if where.name else title
        label = f"{evaluation}{SEPARATOR}{dataset}"
        if name == RESPONSES_FILE:
            label += f"{SEPARATOR}not graded"
    return FoundFile(
        name=str(path),
        label=label,
        evaluation=evaluation,
        dataset=dataset,
        time=modified(root / path),
    )


def _evaluation_label(folder: PurePosixPath, title: str) -> str:
    """The run and the step of an evaluation in training; any other by its folder."""
    match = STEP_FOLDER.fullmatch(folder.name)
    if match is not None and folder.parent.name == IN_A_RUN:
        run = _folder_label(folder.parent.parent, title)
        return f"{run}{SEPARATOR}step {int(match[1])}"
    return _folder_label(folder, title)


def _folder_label(folder: PurePosixPath, title: str) -> str:
    return str(folder) if folder.parts else title


def newest_together(files: Sequence[FoundFile], count: int) -> tuple[FoundFile, ...]:
    """The newest files on one data set, at most `count` of them.

    It is the newest data set with two files or more, else the newest of all.
    """
    if not files:
        return ()
    counts = Counter(one.dataset for one in files)
    chosen = next((one.dataset for one in files if counts[one.dataset] > 1), files[0].dataset)
    return tuple([one for one in files if one.dataset == chosen][:count])
