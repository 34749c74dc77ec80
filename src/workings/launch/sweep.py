"""A sweep: runs of one configuration that differ in a few settings, planned and carried out.

    FOLDER/sweep.json                what was asked, and how every run stands
    FOLDER/learning_rate_1e-5/       a run like any other: metrics, checkpoints, final model
    FOLDER/logs/learning_rate_1e-5.log   what it said
    FOLDER/plots/                    the figure at the end

Every run is the command that a person would type, in a process of its own. A sweep that is started
again keeps what is finished and goes on with the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from workings.config.compose import Composer
from workings.config.kinds import AnyRun
from workings.config.sources import RESOLVED_NAME
from workings.errors import ConfigError, DataError, WorkingsError
from workings.evaluation.reports import SUMMARY_FILE
from workings.launch.sweep_axes import Grid, run_names
from workings.launch.sweep_settings import PHASES, refuse_other_settings, settings_of
from workings.tracking.jsonl import FILE_NAME

SWEEP_FILE, LOGS = "sweep.json", "logs"
KINDS = ("sft", "dpo", "grpo", "expert-iteration", "pipeline", "eval")
ALREADY_FINISHED = 3
"""The exit code of a resumed run that has nothing left to do."""
_ERROR = "error: "

Status = Literal["waiting", "running", "finished", "failed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: its folder's name.
        values: {key: value} of what varies.
        folder: where it lies; of a pipeline the parent of both phases.
        status: "finished", "failed" (it ended with an error), "stopped" (by a signal), "running"
            (also where the sweep was killed meanwhile), or "waiting".
        error: what it said of its failure; empty elsewhere.
        seconds: wall-clock time of its last start.
        settings: {dotted path: value} of all that it is made with; empty where not known.
    """

    name: str
    values: Mapping[str, str]
    folder: Path
    status: Status = "waiting"
    error: str = ""
    seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics_file(self) -> Path:
        """Its metrics; of a pipeline those of its last phase."""
        phases = (self.folder / phase / FILE_NAME for phase in reversed(PHASES))
        places = [self.folder / FILE_NAME, *phases]
        return next((place for place in places if place.is_file()), places[0])

    @property
    def has_results(self) -> bool:
        """Whether anything was recorded or measured in its folder."""
        return self.metrics_file.is_file() or any(self.folder.rglob(SUMMARY_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All runs of a sweep, and what they are made of.

    Attributes:
        kind: of the runs, e.g. "grpo".
        configs: names and files after -c.
        grid: what varies and what is fixed.
        folder: of the sweep.
        runs: in the order of the product.
    """

    kind: str
    configs: tuple[str, ...]
    grid: Grid
    folder: Path
    runs: tuple[SweepRun, ...]

    def arguments(self, run: SweepRun) -> list[str]:
        """The arguments of `workings` for this run."""
        configs = [part for name in self.configs for part in ("-c", name)]
        return [self.kind, *configs, *self.overrides(run)]

    def overrides(self, run: SweepRun) -> list[str]:
        """Everything that the command line gives this run."""
        values = [f"{key}={value}" for key, value in run.values.items()]
        if self.kind == "pipeline":
            place = [
                f"{phase}.{setting}"
                for phase in PHASES
                for setting in (f"output_dir={run.folder}", f"name={phase}")
            ]
        else:
            place = [f"output_dir={self.folder}", f"name={run.name}"]
        return [*self.grid.fixed, *values, *place]

    def log(self, run: SweepRun) -> Path:
        """Where the run's output goes."""
        return self.folder / LOGS / f"{run.name}.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A run to be started: the arguments of `workings`, and the file for what it says."""

    name: str
    arguments: tuple[str, ...]
    log: Path


Ended = Callable[[Task, int, float], None]
"""Called with the task, its exit code and the seconds that it took."""


class Launcher(Protocol):
    """Starts tasks somewhere, waits for all of them, and says when each starts and ends."""

    def run(self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended) -> None:
        """Return when every task has ended; stop those that run when interrupted."""


def check_kind(kind: str) -> None:
    """ConfigError where runs of this kind have no end to compare."""
    if kind not in KINDS:
        raise ConfigError(
            f"a run of kind {kind!r} cannot be swept", hint=f"expected one of {', '.join(KINDS)}"
        )


def plan_sweep(composer: Composer, grid: Grid, *, folder: Path) -> Sweep:
    """The sweep, with every run's configuration checked and what is on disk taken into account.

    `composer` has read the files after -c. ConfigError names the run whose settings are wrong, or
    one with results whose settings changed.
    """
    check_kind(composer.kind)
    before = _stored_runs(folder)
    points = grid.points()
    runs = [
        SweepRun(name=name, values=point, folder=folder / name)
        for name, point in zip(run_names(points), points, strict=True)
    ]
    sweep = Sweep(
        kind=composer.kind,
        configs=composer.names_or_files,
        grid=grid,
        folder=folder,
        runs=tuple(runs),
    )
    checked = []
    for run in runs:
        composed = _composed(composer, sweep, run)
        run = replace(run, settings=settings_of(composed))
        stored = before.get(run.name)
        if run.has_results:
            was = {} if stored is None else stored.settings
            refuse_other_settings(run.folder, composed, stored=was)
        if stored is not None and run.metrics_file.is_file():
            run = replace(run, status=stored.status, error=stored.error, seconds=stored.seconds)
        checked.append(run)
    return replace(sweep, runs=tuple(checked))


def run_sweep(sweep: Sweep, launcher: Launcher, *, say: Callable[[str], None]) -> Sweep:
    """The sweep with every run's outcome, after all that was not finished has been run.

    `sweep.json` is written whenever a run starts or ends. A run that fails does not stop the
    others.
    """
    state = {run.name: run for run in sweep.runs}
    total, done = len(state), sum(run.status == "finished" for run in sweep.runs)
    if done:
        say(f"{done} of {total} runs are finished already")
    todo = [run for run in sweep.runs if run.status != "finished"]
    tasks = []
    for run in todo:
        arguments = sweep.arguments(run)
        if _was_started(run.folder):
            arguments += ["--resume", "latest"]
        tasks.append(Task(name=run.name, arguments=tuple(arguments), log=sweep.log(run)))
    (sweep.folder / LOGS).mkdir(parents=True, exist_ok=True)

    def current() -> Sweep:
        return replace(sweep, runs=tuple(state.values()))

    def started(task: Task) -> None:
        state[task.name] = replace(state[task.name], status="running", error="")
        write_sweep(current())
        say(f"{task.name}: started")

    def ended(task: Task, code: int, seconds: float) -> None:
        status = _status(code)
        error = _last_error(task.log, code) if status != "finished" else ""
        state[task.name] = replace(state[task.name], status=status, error=error, seconds=seconds)
        write_sweep(current())
        settled = sum(run.status in ("finished", "failed") for run in state.values())
        text = f"[{settled}/{total}] {task.name}: {status} after {seconds:.0f} s"
        say(f"{text}: {error}" if error else text)

    with _locked(sweep.folder):
        write_sweep(current())
        if tasks:
            launcher.run(tasks, started=started, ended=ended)
    return current()


def write_sweep(sweep: Sweep, *, results: Mapping[str, Any] | None = None) -> Path:
    """`sweep.json`, replaced as a whole; `results` are the table at the end."""
    content = {
        "kind": sweep.kind,
        "configs": list(sweep.configs),
        "fixed": list(sweep.grid.fixed),
        "axes": {axis.key: list(axis.values) for axis in sweep.grid.axes},
        "zipped": [list(group) for group in sweep.grid.zipped],
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "runs": [
            {
                **asdict(run),
                "folder": run.folder.relative_to(sweep.folder).as_posix(),
                "seconds": round(run.seconds, 1),
                "log": sweep.log(run).relative_to(sweep.folder).as_posix(),
            }
            for run in sweep.runs
        ],
    }
    if results is not None:
        content["results"] = dict(results)
    path = sweep.folder / SWEEP_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{SWEEP_FILE}.new")
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)
    return path


def read_sweep_runs(folder: Path) -> list[SweepRun]:
    """The runs that the sweep in `folder` wrote down; DataError where there is no sweep."""
    path = folder / SWEEP_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [
            SweepRun(
                name=row["name"],
                values=row["values"],
                folder=folder / row["folder"],
                status=row["status"],
                error=row["error"],
                seconds=row["seconds"],
                settings=row.get("settings", {}),
            )
            for row in content["runs"]
        ]
    except FileNotFoundError:
        raise DataError(f"{folder} is no sweep's folder: it holds no {SWEEP_FILE}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}", hint="move it away; runs that are there are resumed"
        ) from error


# -------------------------------------------------------------------------------------- parts


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """ConfigError where this sweep runs already, or a run of one that was killed still does."""
    with (folder / LOGS / ".lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: this sweep is running, or runs of a sweep that was killed still are",
                hint="wait for them, or end them; the logs lie in its folder logs",
            ) from None
        yield


def _stored_runs(folder: Path) -> dict[str, SweepRun]:
    if not (folder / SWEEP_FILE).is_file():
        return {}
    return {run.name: run for run in read_sweep_runs(folder)}


def _composed(composer: Composer, sweep: Sweep, run: SweepRun) -> AnyRun:
    try:
        return composer.compose(sweep.overrides(run)).run
    except WorkingsError as error:
        raise ConfigError(f"{run.name}: {error.message}", hint=error.hint) from error


def _was_started(folder: Path) -> bool:
    return any(
        (place / RESOLVED_NAME).is_file() for place in (folder, *(folder / p for p in PHASES))
    )


def _status(code: int) -> Status:
    if code in (0, ALREADY_FINISHED):
        return "finished"
    # 128 + signal from our own commands, -signal from a process that a signal ended.
    return "stopped" if code < 0 or code >= 128 else "failed"


def _last_error(log: Path, code: int) -> str:
    """What the run said of its failure: its last "error:" with the hint below, in one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_ERROR):
            said = [line.strip() for line in lines[index:] if line.strip()]
            return " ".join(said).removeprefix(_ERROR)[:500]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return f"exit code {code}: {last[:300]}"
