"""What the commands share: options with one meaning everywhere, settings, and the way to `run`.

A command's own file, `workings.cli.commands.NAME`, is imported when the command is used.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

from workings.cli.console import write_data, write_note
from workings.cli.options import overrides_from
from workings.config.kinds import AnyRun
from workings.errors import ConfigError, is_out_of_memory


class Interrupted(Exception):
    """Ctrl-C while a command ran."""


# Everything that is no option here is a setting of the run, and read by `cli.options`.
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

Configs = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--config",
        "--config-name",
        metavar="NAME_OR_FILE",
        help="A shipped configuration or a YAML file; again for files that refine it.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="[latest|PATH]",
        help="Go on from a checkpoint; without a value, from the latest of this run.",
    ),
]


def start(
    kind: str, config: list[str] | None, arguments: list[str], *, dry_run: bool, resume: str | None
) -> int:
    """The exit code of a run of this kind; with `dry_run` its settings are printed, no more."""
    run = composed(kind, config, arguments)
    if dry_run:
        return print_configuration(run)
    return hand_over(kind, run, resume=resume)


def start_grid(
    config: list[str] | None,
    arguments: list[str],
    grid: list[str],
    *,
    dry_run: bool,
    resume: str | None,
    fresh: bool,
) -> int:
    """The exit code of an evaluation of every cell of the grid, as `start` of one."""
    from workings.cli.evaluation.grid import compose_cells, grid_values
    from workings.config.dump import dump_yaml

    cells = compose_cells(config or [], overrides_from(arguments, "eval"), grid_values(grid))
    for note in dict.fromkeys(note for cell in cells for note in cell.notes):
        write_note(note)
    if dry_run:
        write_data("---\n".join(dump_yaml(cell.config) for cell in cells))
        return 0
    return hand_over("eval", cells[0].config, resume=resume, fresh=fresh, cells=cells)


def composed(kind: str, config: list[str] | None, arguments: list[str]) -> AnyRun:
    """The run that files and settings make; what had to be said about them goes to stderr."""
    from workings.cli.evaluation.settings import compose_evaluation
    from workings.config.compose import compose_with_notes

    overrides = overrides_from(arguments, kind)
    if kind == "eval":
        composition = compose_evaluation(config or [], overrides)
    else:
        composition = compose_with_notes(config or [], overrides, kind=kind)
    for note in composition.notes:
        write_note(note)
    return composition.run


def kind_asked_for(config: list[str] | None, *, default: str, rather: str = "") -> str:
    """The kind of the first file; `rather` where a shipped name stands for that kind as well."""
    from workings.config.sources import kind_of, shipped_names

    if config and rather and config[0] in shipped_names(rather):
        return rather
    return kind_of(config[0]) if config else default


def whole_numbers(text: str | None, option: str) -> tuple[int, ...]:
    """The numbers above 1 of a list with commas; `option` is named where one is not."""
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 1 for part in parts):
        raise ConfigError(f"{option} {text}; expected numbers above 1, such as 512,2048")
    return tuple(int(part) for part in parts)


def print_configuration(run: AnyRun) -> int:
    """0; the run's settings are printed as YAML."""
    from workings.config.dump import dump_yaml
    from workings.config.grpo import GRPOConfig
    from workings.config.pipeline import PipelineConfig

    sampled = run.grpo if isinstance(run, PipelineConfig) else run
    if isinstance(sampled, GRPOConfig) and sampled.schedule != "synchronous":
        write_note(sampled.describe_schedule())
    write_data(dump_yaml(run))
    return 0


def names_in(text: str | None) -> list[str]:
    """The names in a list with commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def hand_over(command: str, *arguments: Any, **options: Any) -> int:
    """Run `workings.cli.commands.COMMAND.run`; its result is the exit code."""
    try:
        module = importlib.import_module(f"workings.cli.commands.{command.replace('-', '_')}")
        code: int = module.run(*arguments, **options)
    except KeyboardInterrupt as interrupt:
        raise Interrupted from interrupt
    except Exception as error:
        from workings.cli.out_of_memory import explained

        run = next((part for part in (*arguments, *options.values()) if _is_run(part)), None)
        if run is None or not is_out_of_memory(error):
            raise
        raise explained(error, run) from error
    return code


def _is_run(part: object) -> bool:
    from workings.config.section import RunSection

    return isinstance(part, RunSection)
