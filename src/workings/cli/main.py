"""The command `workings`: it reads arguments, composes the configuration and hands over.

What a command does stands in `workings.cli.commands.NAME`, whose `run` is imported when the
command is used; `--help` and `--dry-run` therefore import no torch.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import workings
from workings.cli.console import write_data, write_error, write_note
from workings.cli.options import overrides_from, with_resume_value
from workings.cli.settings_help import RunCommand
from workings.config.kinds import AnyRun
from workings.errors import AlreadyFinished, ConfigError, DataError, StoppedBySignal, WorkingsError

# typer's own base of every wrong use of an option; not exported by name in all of its versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _Interrupted(Exception):
    """Ctrl-C while a command ran."""


app = typer.Typer(
    name="workings",
    help="Teach language models to show their workings: SFT, GRPO, grading and evaluation.",
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
inspect_app = typer.Typer(
    help="Look at data and at sampled completions.",
    rich_markup_mode=None,
)
app.add_typer(inspect_app, name="inspect")
data_app = typer.Typer(help="Make data sets out of others.", rich_markup_mode=None)
app.add_typer(data_app, name="data")
profile_app = typer.Typer(
    help="Measure what a run needs and how fast it is.", rich_markup_mode=None
)
app.add_typer(profile_app, name="profile")

# Everything that is no option here is a setting of the run, and read by `cli.options`.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

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
    except (_Interrupted, KeyboardInterrupt, typer.Abort):
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


# ------------------------------------------------------------------------------------- runs


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def sft(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Fine-tune on demonstrations."""
    return _start("sft", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def dpo(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Learn from pairs of a better and a worse response (DPO)."""
    return _start("dpo", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def grpo(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Learn from graded samples (GRPO)."""
    return _start("grpo", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(name="expert-iteration", cls=RunCommand, context_settings=_PASS_ON)
def expert_iteration(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Sample, keep what is right, fine-tune on it, repeat."""
    return _start("expert-iteration", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def pipeline(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """SFT, then GRPO from its result."""
    return _start("pipeline", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(name="eval", cls=RunCommand, context_settings=_PASS_ON)
def evaluate(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Evaluate a model on benchmarks.

    The model may be a checkpoint; every number comes with its interval. With -c and the folder of
    a training run, its model is measured just as the run measures itself.
    """
    return _start("eval", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(context_settings=_PASS_ON)
def quickstart(
    ctx: typer.Context,
    config: Configs = None,
    dry_run: DryRun = False,
    resume: Resume = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew in an empty folder.")] = False,
) -> int:
    """Watch a real model learn arithmetic here.

    Baseline, SFT, GRPO, evaluation and a plot, on this machine. Settings of `workings pipeline`
    may follow.
    """
    run = _composed("pipeline", config or ["quickstart"], ctx.args)
    if dry_run:
        return _print_configuration(run)
    return _hand_over("quickstart", run, resume=resume, fresh=fresh)


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def sample(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Folder, hub id or known name of a model.")],
    question: Annotated[str, typer.Argument(help="What to ask.")],
    config: Configs = None,
    dry_run: DryRun = False,
    num_samples: Annotated[int, typer.Option("-n", help="How many answers.")] = 1,
) -> int:
    """Ask a model a question."""
    asked = [f"--model.name_or_path={model}", f"--num_samples={num_samples}"]
    run = _composed("sample", config, [*asked, *ctx.args])
    if dry_run:
        return _print_configuration(run)
    return _hand_over("sample", run, question=question)


@app.command(cls=RunCommand, context_settings=_PASS_ON)
def serve(ctx: typer.Context, config: Configs = None, dry_run: DryRun = False) -> int:
    """Sample for a training run elsewhere.

    An engine behind an address, for a run with engine.name=server on another device or host.
    """
    run = _composed("serve", config, ctx.args)
    if dry_run:
        return _print_configuration(run)
    return _hand_over("serve", run)


# ------------------------------------------------------------------------------- after a run


@app.command()
def grade(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="JSONL, JSON, parquet or CSV with responses and golds; - is "
            "JSONL on standard input.",
        ),
    ] = None,
    explain: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--explain",
            metavar="GOLD RESPONSE",
            help="Show one pair's way to its verdict; - is standard input.",
        ),
    ] = None,
    response: Annotated[
        str | None,
        typer.Option(
            "--response",
            metavar="COLUMN",
            help="Where the response, or a list of them, stands; a dot enters an object. "
            "Default: a usual name.",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold", metavar="COLUMN", help="Where the gold answer stands. Default: a usual name."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="NAME", help="What is read: boxed (the default), tag or lenient."
        ),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="The response is the answer itself.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Accuracy by this column; again for more, none for no such table. Default: kind, "
            "subject, type or source.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="COLUMN", help="Copy it to the verdict; again for more."),
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(
            "--expected",
            metavar="COLUMN",
            help="Labels, true or false: count and list where the grader disagrees.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="File of the verdicts, a folder for several, - for standard output. Default: "
            "FILE.graded.jsonl.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, whatever an earlier start left.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for a bad gold or an internal error.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="Processes for hard pairs. Default: one a core, at most 4."
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="Most work on one pair.")
    ] = 2.0,
    show: Annotated[
        int | None,
        typer.Option("--show", min=0, help="Rows of each kind to list. Default: 10."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary or explanation as JSON.")
    ] = False,
) -> int:
    """Grade stored responses, with the reason of every verdict.

    The verdicts go to a file, counts and accuracies with intervals are printed and stored beside
    it. The same command after a stop goes on where it stood.
    """
    from workings.cli.grade.columns import AskedFor

    asked = AskedFor(
        response=response,
        gold=gold,
        by=tuple(by or ()),
        keep=tuple(keep or ()),
        expected=expected,
    )
    return _hand_over(
        "grade",
        files or [],
        pair=explain,
        policy=policy,
        deadline=deadline,
        num_workers=workers,
        asked=asked,
        out=out,
        bare=bare,
        fresh=fresh,
        strict=strict,
        as_json=as_json,
        show=show,
    )


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A metric's name; again for more.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Image file, or a folder for several.")
    ] = None,
) -> int:
    """Draw the curves of runs."""
    return _hand_over("plot", runs, metrics=tuple(metric or ()), output=output)


@app.command()
def export(
    source: Annotated[Path, typer.Argument(help="A checkpoint, or a run's folder.")],
    destination: Annotated[Path, typer.Argument(help="Folder to write.")],
    format: Annotated[  # noqa: A002 - the name of the option
        str, typer.Option("--format", help="model, merged, adapter or pytorch.")
    ] = "model",
) -> int:
    """Write a trained model for others to use.

    The Hugging Face layout, with a model card.
    """
    return _hand_over("export", source, destination, format=format)


@inspect_app.command("data", context_settings=_PASS_ON)
def inspect_data(
    ctx: typer.Context,
    config: Configs = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to show.")] = 3,
) -> int:
    """Show rows as the model sees them.

    Tokens, loss mask, template and stop strings.
    """
    kind = _kind_of(config, default="sft")
    return _hand_over("inspect_data", _composed(kind, config, ctx.args), limit=limit)


@inspect_app.command("rollouts", context_settings=_PASS_ON)
def inspect_rollouts(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(help="Folder of a run.")] = None,
    config: Configs = None,
    step: Annotated[int | None, typer.Option("--step", help="Default: the last.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Groups to show.")] = 3,
) -> int:
    """Show sampled completions and rewards.

    And why rewards may be flat. From a run's folder, what it saved; with -c and settings, a few
    fresh samples.
    """
    if config is None:
        if run is None or ctx.args:
            raise ConfigError("give a run's folder, or -c NAME_OR_FILE and settings")
        return _hand_over("inspect_rollouts", Path(run), config=None, step=step, limit=limit)
    settings = ctx.args if run is None else [run, *ctx.args]
    composed = _composed("grpo", config, settings)
    return _hand_over("inspect_rollouts", None, config=composed, step=step, limit=limit)


@data_app.command("filter-correct", context_settings=_PASS_ON)
def filter_correct(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="An SFT set: file, folder, hub id or name.")],
    output: Annotated[Path, typer.Argument(help="New file, .jsonl or .parquet.")],
    config: Configs = None,
) -> int:
    """Keep the rows whose response is right.

    By the reward of an SFT run (r1_zero, or that of -c and settings such as reward=question_only).
    The counts go to stderr and, with the settings, into a card beside the new file.
    """
    run = _composed("sft", config or ["cs336_sft"], ctx.args)
    return _hand_over("filter_correct", run, source, output)


@app.command(context_settings=_PASS_ON)
def doctor(ctx: typer.Context, config: Configs = None) -> int:
    """Say what works on this machine.

    Devices, versions, and what to install for what; with -c and settings, whether that run will
    work here.
    """
    composed = None
    if config is not None or ctx.args:
        kind = _kind_of(config, default="grpo", rather="pipeline")
        composed = _composed(kind, config, ctx.args)
    return _hand_over("doctor", composed)


@profile_app.command("memory", context_settings=_PASS_ON)
def profile_memory(
    ctx: typer.Context,
    config: Configs = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="N,N,...",
            help="Tokens in a row. Default: the longest that the run allows, its half and quarter.",
        ),
    ] = None,
    most_rows: Annotated[
        int, typer.Option("--most-rows", min=1, help="Rows in a microbatch to stop at.")
    ] = 64,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps of a trial.")] = 3,
    limit: Annotated[
        float | None,
        typer.Option(
            "--limit-gib",
            metavar="GIB",
            help="Memory that the process may hold. Default: the card's, or what the machine has "
            "free.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Every combination of offloading, recomputation and attention."
        ),
    ] = False,
) -> int:
    """Find the largest microbatch that fits.

    By real steps of the run's model, objective and optimizer over made-up rows, in a process of
    their own. A table of all trials and heat maps go below the run's folder.
    """
    kind = _kind_of(config, default="grpo")
    return _hand_over(
        "profile_memory",
        _composed(kind, config, ctx.args),
        lengths=_whole_numbers(lengths, "--lengths"),
        most_rows=most_rows,
        num_steps=steps,
        limit_gib=limit,
        compare=compare,
    )


@profile_app.command("throughput", context_settings=_PASS_ON)
def profile_throughput(
    ctx: typer.Context,
    config: Configs = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to measure.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Steps before them.")] = 2,
    peak_tflops: Annotated[
        float | None,
        typer.Option(
            "--peak-tflops",
            metavar="TFLOPS",
            help="The device's peak, for MFU. Default: the known one of the card, in bfloat16.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Time a few real steps.

    Tokens per second, MFU and seconds by phase (rollout, reward, score, train, sync). Nothing is
    evaluated or saved.
    """
    kind = _kind_of(config, default="grpo")
    return _hand_over(
        "profile_throughput",
        _composed(kind, config, ctx.args),
        num_steps=steps,
        num_warmup=warmup,
        peak_tflops=peak_tflops,
        as_json=as_json,
    )


# ------------------------------------------------------------------------------------- parts


def _start(
    kind: str, config: list[str] | None, arguments: list[str], *, dry_run: bool, resume: str | None
) -> int:
    run = _composed(kind, config, arguments)
    if dry_run:
        return _print_configuration(run)
    return _hand_over(kind, run, resume=resume)


def _composed(kind: str, config: list[str] | None, arguments: list[str]) -> AnyRun:
    from workings.cli.evaluation_settings import compose_evaluation
    from workings.config.compose import compose_with_notes

    overrides = overrides_from(arguments, kind)
    if kind == "eval":
        composition = compose_evaluation(config or [], overrides)
    else:
        composition = compose_with_notes(config or [], overrides, kind=kind)
    for note in composition.notes:
        write_note(note)
    return composition.run


def _kind_of(config: list[str] | None, *, default: str, rather: str = "") -> str:
    """The kind of the first file; `rather` where a shipped name stands for that kind as well."""
    from workings.config.sources import kind_of, shipped_names

    if config and rather and config[0] in shipped_names(rather):
        return rather
    return kind_of(config[0]) if config else default


def _whole_numbers(text: str | None, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 1 for part in parts):
        raise ConfigError(f"{option} {text}; expected numbers above 1, such as 512,2048")
    return tuple(int(part) for part in parts)


def _print_configuration(run: AnyRun) -> int:
    from workings.config.dump import dump_yaml
    from workings.config.grpo import GRPOConfig
    from workings.config.pipeline import PipelineConfig

    sampled = run.grpo if isinstance(run, PipelineConfig) else run
    if isinstance(sampled, GRPOConfig) and sampled.schedule != "synchronous":
        write_note(sampled.describe_schedule())
    write_data(dump_yaml(run))
    return 0


def _hand_over(command: str, *arguments: Any, **options: Any) -> int:
    """Run `workings.cli.commands.COMMAND.run`; its result is the exit code."""
    try:
        module = importlib.import_module(f"workings.cli.commands.{command.replace('-', '_')}")
        code: int = module.run(*arguments, **options)
    except KeyboardInterrupt as interrupt:
        raise _Interrupted from interrupt
    except Exception as error:
        from workings.cli.out_of_memory import explained, is_out_of_memory

        run = next((part for part in (*arguments, *options.values()) if _is_run(part)), None)
        if run is None or not is_out_of_memory(error):
            raise
        raise explained(error, run) from error
    return code


def _is_run(part: object) -> bool:
    from workings.config.section import RunSection

    return isinstance(part, RunSection)


if __name__ == "__main__":
    sys.exit(main())
