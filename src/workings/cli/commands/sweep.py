"""`workings sweep`: one configuration with several values of some settings, as many runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.config.compose import Composer
from workings.config.pipeline import PipelineConfig
from workings.config.sections import Run
from workings.errors import ConfigError
from workings.evaluation.tables import text_table
from workings.launch.sweep import Launcher, Sweep, check_kind, plan_sweep, run_sweep, write_sweep
from workings.launch.sweep_axes import Grid, read_grid

LAUNCHERS = ("local", "ray")
_LAUNCHER = "launcher="


def run(
    kind: str,
    configs: Sequence[str],
    overrides: Sequence[str],
    *,
    zipped: Sequence[str],
    jobs: int | None,
    devices: Sequence[str],
    cpus: float,
    gpus: float,
    metric: str | None,
    minimise: bool | None,
    dry_run: bool,
) -> int:
    """Run what is not finished, then print the table, the best run first; 1 where a run failed.

    The table goes to stdout, with the files of the figure below it; progress goes to stderr.
    """
    check_kind(kind)
    launcher, overrides = _take_launcher(overrides)
    zips = [tuple(key.strip() for key in group.split(",")) for group in zipped]
    grid = read_grid(overrides, zipped=zips)
    composer = Composer(configs, kind=kind)
    sweep = plan_sweep(composer, grid, folder=_folder(composer, grid))
    if dry_run:
        write_data(_listed(sweep))
        return 0
    started = _launcher(launcher, jobs=jobs, devices=devices, cpus=cpus, gpus=gpus)
    sweep = run_sweep(sweep, started, say=write_note)
    return _finish(sweep, metric=metric, minimise=minimise)


def _take_launcher(overrides: Sequence[str]) -> tuple[str, list[str]]:
    """The launcher's name, and the other overrides."""
    named = [text.removeprefix(_LAUNCHER) for text in overrides if text.startswith(_LAUNCHER)]
    launcher = named[-1] if named else LAUNCHERS[0]
    if launcher not in LAUNCHERS:
        raise ConfigError(f"launcher={launcher}; expected one of {', '.join(LAUNCHERS)}")
    return launcher, [text for text in overrides if not text.startswith(_LAUNCHER)]


def _launcher(
    name: str, *, jobs: int | None, devices: Sequence[str], cpus: float, gpus: float
) -> Launcher:
    if name == "ray":
        from workings.launch.ray_tasks import RayTasks

        if devices:
            raise ConfigError("--devices is for launcher=local; Ray shares out devices by --gpus")
        return RayTasks(jobs=jobs or 0, num_cpus=cpus, num_gpus=gpus)
    from workings.launch.local_processes import LocalProcesses

    return LocalProcesses(jobs=jobs or max(1, len(devices)), devices=devices)


def _folder(composer: Composer, grid: Grid) -> Path:
    """`output_dir/name` as for a run; by default the name says what is swept.

    A pipeline has no name of its own, so its `name=` and `output_dir=` are taken out of the GRPO
    phase.
    """
    base = composer.compose(grid.fixed).run
    run = base.grpo if isinstance(base, PipelineConfig) else base
    assert isinstance(run, Run)
    keys = "-".join(axis.key.rpartition(".")[2] for axis in grid.axes)
    is_named = any(text.startswith(("name=", "grpo.name=")) for text in grid.fixed)
    name = run.name if is_named else f"sweeps/{run.name.replace('/', '-')}-{keys}"
    return Path(run.output_dir).expanduser() / name


def _listed(sweep: Sweep) -> str:
    """What would be run, and how each run stands already."""
    keys = [axis.key for axis in sweep.grid.axes]
    rows = [[run.name, *(run.values[key] for key in keys), run.status] for run in sweep.runs]
    headers = ["run", *keys, "status"]
    lines = [
        f"{len(sweep.runs)} {sweep.kind} runs below {sweep.folder}",
        f"in common: {' '.join(sweep.grid.fixed) or 'nothing but the configuration'}",
        "",
        text_table(headers, rows, alignments=["left"] * len(headers)),
    ]
    return "\n".join(lines)


def _finish(sweep: Sweep, *, metric: str | None, minimise: bool | None) -> int:
    from workings.launch.sweep_results import draw_sweep, results_table, sweep_results

    found = sweep_results(sweep.runs, metric=metric, lower_is_better=minimise)
    write_data(results_table(sweep, found))
    path = write_sweep(sweep, results=None if found is None else found.to_dict())
    files = [] if found is None else draw_sweep(sweep, found)
    write_data("\n".join(["", *map(str, files), str(path)]))
    failed = [run for run in sweep.runs if run.status != "finished"]
    for run in failed:
        write_note(f"{run.name} {run.status}: {run.error} (see {sweep.log(run)})")
    if failed:
        write_note("the same command tries these again and keeps the others")
    return 1 if failed else 0
