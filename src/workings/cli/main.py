"""The command `workings`: it reads arguments and turns errors into exit codes.

The commands and their options stand in `workings.cli.apps`; what a command does stands in
`workings.cli.commands.NAME`, whose `run` is imported when the command is used. `--help` and
`--dry-run` therefore import no torch.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import workings
from workings.cli.apps import data, grading, inspect, profile, results, runs, wandb
from workings.cli.apps.shared import Interrupted
from workings.cli.console import write_data, write_error
from workings.cli.options import with_resume_value
from workings.errors import AlreadyFinished, ConfigError, DataError, StoppedBySignal, WorkingsError

# typer's own base of every wrong use of an option; not exported by name in all of its versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="workings",
    help="Teach language models to show their workings: SFT, GRPO, grading and evaluation.",
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _part in (runs, grading, results):
    app.registered_commands += _part.app.registered_commands
for _name, _part in {"inspect": inspect, "data": data, "wandb": wandb, "profile": profile}.items():
    app.add_typer(_part.app, name=_name)


def main(argv: list[str] | None = None) -> int:
    """The exit code of the command with these arguments (those of the process by default).

    0: done. 1: the run failed for a reason that it names. 2: the command line, the configuration
    or the data is wrong. 128 + n: stopped by signal n after saving. 130: interrupted.
    """
    arguments = with_resume_value(sys.argv[1:] if argv is None else argv)
    try:
        result = app(args=arguments, prog_name="workings", standalone_mode=False)
    except StoppedBySignal as error:
        write_error(error)
        return 128 + error.signal_number
    except (ConfigError, DataError) as error:
        write_error(error)
        return 2
    except AlreadyFinished as error:
        write_error(error)
        return 3
    except WorkingsError as error:
        write_error(error)
        return 1
    except _UsageError as error:
        write_error(error.format_message())  # type: ignore[attr-defined]
        return 2
    except (Interrupted, KeyboardInterrupt, typer.Abort):
        write_error("interrupted")
        return 130
    except SystemExit as stop:  # typer's answer to a reader of stdout that has gone away
        return stop.code if isinstance(stop.code, int) else 1
    return result if isinstance(result, int) else 0


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        write_data(f"workings {workings.__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        write_data(ctx.get_help())


if __name__ == "__main__":
    sys.exit(main())
