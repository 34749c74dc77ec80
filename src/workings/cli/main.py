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
wandb_app = typer.Typer(
    help="Weights & Biases: set it up, send offline runs.", rich_markup_mode=None
)
app.add_typer(wandb_app, name="wandb")
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
    ctx: typer.Context,
    config: Configs = None,
    dry_run: DryRun = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[latest]",
            help="Keep what an earlier start has sampled, and do the rest.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, whatever an earlier start left.")
    ] = False,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=A,B",
            help="Evaluate every combination of these values; again for more keys.",
        ),
    ] = None,
    regrade: Annotated[
        Path | None,
        typer.Option(
            "--regrade",
            metavar="FOLDER",
            help="Grade the responses of an evaluation again, without a model; settings of reward "
            "and grader may follow.",
        ),
    ] = None,
) -> int:
    """Evaluate a model on benchmarks.

    The model may be a checkpoint; every number comes with its interval. With -c and the folder of
    a training run, its model is measured just as the run measures itself.
    """
    if regrade is not None:
        if config or grid or resume or fresh or dry_run:
            raise ConfigError("--regrade FOLDER takes settings of reward and grader, and no option")
        return _hand_over("eval_regrade", regrade, overrides_from(ctx.args, "eval"))
    if grid:
        return _start_grid(config, ctx.args, grid, dry_run=dry_run, resume=resume, fresh=fresh)
    run = _composed("eval", config, ctx.args)
    if dry_run:
        return _print_configuration(run)
    return _hand_over("eval", run, resume=resume, fresh=fresh)


@app.command("eval-luffy", context_settings=_PASS_ON)
def evaluate_luffy(
    ctx: typer.Context,
    model_path: Annotated[str, typer.Option("--model_path", "--model-path", help="The model.")],
    input_file: Annotated[
        str,
        typer.Option("--input_file", "--input-file", help="Parquet with LUFFY's columns, or any."),
    ],
    output_file: Annotated[
        Path, typer.Option("--output_file", "--output-file", help="Rows, one JSON object a line.")
    ],
    remove_system: Annotated[
        bool,
        typer.Option(
            "--remove_system", "--remove-system", help="Leave out the rows' system message."
        ),
    ] = False,
    template: Annotated[
        str, typer.Option("--template", help="own, qwen, prime, simplerl, no ... or a file.")
    ] = "own",
    add_oat_evaluate: Annotated[
        bool,
        typer.Option("--add_oat_evaluate", "--add-oat-evaluate", help="The second grader decides."),
    ] = False,
    any_true: Annotated[
        bool, typer.Option("--any_true", "--any-true", help="Either grader decides.")
    ] = False,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.")] = 0.6,
    top_p: Annotated[float, typer.Option("--top_p", "--top-p", help="1 is off.")] = 1.0,
    max_tokens: Annotated[
        int, typer.Option("--max_tokens", "--max-tokens", help="Most tokens of a response.")
    ] = 8192,
    n: Annotated[int, typer.Option("--n", help="Responses to each row.")] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, whatever an earlier start left.")
    ] = False,
) -> int:
    """Evaluate by the flags of LUFFY's script.

    Rows, decoded text and a log go beside the output file. Other settings of `workings eval` may
    follow, such as devices=[0,1] or engine.name=vllm.
    """
    given = {
        "model.name_or_path": model_path,
        "template": template,
        "sampling.temperature": temperature,
        "sampling.top_p": top_p,
        "sampling.max_tokens": max_tokens,
        "num_samples": n,
        "name": output_file.stem,
    }
    overrides = [f"--{key}={value}" for key, value in given.items()]
    overrides += ["sampling.stop=[]", f"datasets=[{{path: '{input_file}', name: input}}]"]
    run = _composed("eval", None, [*overrides, *ctx.args])
    module = importlib.import_module("workings.cli.commands.eval_luffy")
    flags = module.Flags(
        output=output_file,
        remove_system=remove_system,
        second_decides=add_oat_evaluate,
        either_decides=any_true,
    )
    return _hand_over("eval_luffy", run, flags, fresh=fresh)


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


@app.command(context_settings=_PASS_ON)
def judge(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="An evaluation, or one data set of it.")],
    config: Configs = None,
    dry_run: DryRun = False,
) -> int:
    """Let a model judge replies without a gold.

    AlpacaEval's win rate and the share of safe replies, from what `workings eval` stored. Settings
    of the judge may follow: model.name_or_path=..., engine.name=vllm.
    """
    run = _composed("sample", config, ["--sampling.temperature=0", *ctx.args])
    if dry_run:
        return _print_configuration(run)
    return _hand_over("judge", folder, run)


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


@app.command(context_settings=_PASS_ON)
def sweep(
    ctx: typer.Context,
    config: Configs = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Runs at once. Default: one, or one a device."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="N,N,...", help="GPUs; every run gets one of them."),
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option(
            "--zip",
            metavar="KEY,KEY",
            help="Settings whose values go together one by one; again for more.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="What is compared. Default: the accuracy."),
    ] = None,
    minimise: Annotated[
        bool | None,
        typer.Option("--minimise/--maximise", help="What is best. Default: by the metric."),
    ] = None,
    cpus: Annotated[float, typer.Option("--cpus", min=0.0, help="Of a run, on Ray.")] = 1.0,
    gpus: Annotated[float, typer.Option("--gpus", min=0.0, help="Of a run, on Ray.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
) -> int:
    """Run every combination of several values.

    key=a,b key2=c,d are four runs, each in a folder of its own below output_dir/name; launcher=ray
    puts them on a Ray cluster. The same command goes on with a sweep that was stopped, and tries
    again what failed. At the end: one table, the best run first, and one figure.
    """
    kind = _kind_of(config, default="grpo")
    return _hand_over(
        "sweep",
        kind,
        config or [],
        overrides_from(ctx.args, kind),
        zipped=together or [],
        jobs=jobs,
        devices=[] if devices is None else _names(devices),
        cpus=cpus,
        gpus=gpus,
        metric=metric,
        minimise=minimise,
        dry_run=dry_run,
    )


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, evaluations or sweeps.")],
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="sft-loss, rl-reward, module-ablation, grpo-reward, grpo-format-reward, length, "
            "entropy, clip-fraction, grad-norm, bars, bars-by-model, step0-final or memory.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A metric's name; again for more.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="KEY", help="A setting that tells lines apart; again."),
    ] = None,
    smoothing: Annotated[
        int | None,
        typer.Option("--smoothing", min=1, help="Steps of the moving mean. Default: by length."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Instead of the usual one.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Image file, or a folder for several.")
    ] = None,
) -> int:
    """Draw the curves of runs, or a named figure.

    As PNG, SVG and PDF with a caption that holds the settings. Runs that differ in their seed alone
    are one line in a named figure. A sweep's folder stands for its runs.
    """
    return _hand_over(
        "plot",
        runs,
        metrics=tuple(metric or ()),
        output=output,
        figure=figure,
        by=tuple(by or ()),
        smoothing=smoothing,
        title=title,
    )


@app.command()
def compare(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER", help="Evaluations or runs; the first is the reference."),
    ],
    pool: Annotated[
        bool,
        typer.Option(
            "--pool", help="Each argument is several seeds, pooled: A,B,C or a quoted pattern."
        ),
    ] = False,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", metavar="NAME", help="Only this data set; again for more."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", help="Of training runs, this evaluation. Default: the last."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Of training runs; again for more."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say which model is better, and whether it is clear.

    Paired by problem, per data set: both accuracies, the difference with its interval, and how many
    problems got better and worse. Several comparisons are corrected for their number. Of training
    runs the final metrics stand side by side.
    """
    return _hand_over(
        "compare",
        folders,
        pool=pool,
        datasets=tuple(dataset or ()),
        step=step,
        metrics=tuple(metric or ()),
        as_json=as_json,
    )


@app.command()
def view(
    folder: Annotated[Path, typer.Argument(help="Where the runs and evaluations are.")] = Path(
        "runs"
    ),
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="Default: 8501, or a free one."),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH",
            help="For the texts of tokens: a model's folder. Default: one beside the run.",
        ),
    ] = None,
) -> int:
    """Show runs and responses in the browser.

    Curves, benchmarks with intervals and paired differences, and every stored response with its
    LaTeX. Read-only, for this machine alone, without network.
    """
    return _hand_over("view", folder, port=port, open_browser=open_browser, tokenizer=tokenizer)


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

    Tokens, loss mask, template and stop strings, and below them what was checked; exit code 1 names
    every fault of EOS, BOS, prompt ids, lengths and packing.
    """
    kind = _kind_of(config, default="sft")
    return _hand_over("inspect_data", _composed(kind, config, ctx.args), limit=limit)


@inspect_app.command("prompts", context_settings=_PASS_ON)
def inspect_prompts(
    ctx: typer.Context,
    config: Configs = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Prompts to show.")] = 3,
) -> int:
    """Show prompts as the model sees them.

    Of any data set and template, with the same checks as `inspect data`.
    """
    kind = _kind_of(config, default="grpo")
    return _hand_over("inspect_prompts", _composed(kind, config, ctx.args), limit=limit)


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


@data_app.command("list")
def data_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List the benchmarks.

    With their problems, the rule that they are counted by, where they come from, and the local copy
    that would be read. Nothing is downloaded.
    """
    return _hand_over("data_list", as_json=as_json)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A recipe, or `benchmarks`.")],
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HUB_ID_OR_PATH",
            help="Another hub id, or a local copy: a file or folder. Default: the published data.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="New folder. Default: below data."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="PATTERN", help="Which files; again for more."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read only the first so many rows.")
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Rows to select, held-out ones included.")
    ] = None,
    held_out: Annotated[
        int | None, typer.Option("--held-out", min=0, help="Rows for the validation file.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of the choice of held-out rows.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=1, help="In tokens, EOS included.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="MODEL", help="Whose tokens: hub id, folder or name."),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option("--exclude", metavar="PATH", help="Leave out the questions of this data set."),
    ] = None,
    system_prompt: Annotated[
        str | None,
        typer.Option("--system-prompt", metavar="FILE", help="System message of every prompt."),
    ] = None,
    numeric_answers: Annotated[
        bool,
        typer.Option("--numeric-answers", help="Leave out rows whose answer is no number."),
    ] = False,
    sets: Annotated[
        str | None,
        typer.Option("--sets", metavar="NAME,...", help="Which benchmarks. Default: all."),
    ] = None,
    check_contamination: Annotated[
        str | None,
        typer.Option(
            "--check-contamination",
            metavar="BENCHMARK,...",
            help="Compare the questions with those of benchmarks.",
        ),
    ] = None,
    ngram: Annotated[
        int, typer.Option("--ngram", min=2, help="Words in a row that make an overlap.")
    ] = 13,
    min_share: Annotated[
        float,
        typer.Option(
            "--min-share",
            min=0.0,
            max=1.0,
            help="Least share of a question's n-grams that a row must hold.",
        ),
    ] = 0.0,
    drop_contaminated: Annotated[
        bool, typer.Option("--drop-contaminated", help="Leave out the rows that overlap.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> int:
    """Prepare a known data set for training.

    With counts of rows kept and dropped, checksums and a card. Recipes: omr12k, omr12k-2048,
    omr12k-4096, openmathreasoning_mini, dapo_math, math_sft, luffy, openr1_46k, luffy_sft,
    luffy_sft_rl; and benchmarks, for the benchmarks in one schema.
    """
    settings = {
        "size": size,
        "held_out": held_out,
        "seed": seed,
        "max_length": max_length,
        "tokenizer": tokenizer,
        "exclude": exclude,
        "system_prompt": system_prompt,
        "numeric_answers": numeric_answers or None,
    }
    return _hand_over(
        "data_prepare",
        name,
        origin=origin,
        out=out,
        files=files or [],
        settings={key: value for key, value in settings.items() if value is not None},
        limit=limit,
        sets=_names(sets),
        against=_names(check_contamination),
        ngram=ngram,
        min_share=min_share,
        drop_contaminated=drop_contaminated,
        force=force,
        dry_run=dry_run,
    )


@data_app.command("contamination")
def data_contamination(
    train: Annotated[str, typer.Argument(help="A training set: file, folder, name or hub id.")],
    against: Annotated[
        str, typer.Option("--against", metavar="BENCHMARK,...", help="Benchmarks, or paths.")
    ],
    benchmarks_from: Annotated[
        Path | None,
        typer.Option(
            "--benchmarks-from",
            metavar="FOLDER",
            help="Local copies of benchmarks. Default: $WORKINGS_DATA_DIR, then the hub.",
        ),
    ] = None,
    ngram: Annotated[
        int, typer.Option("--ngram", min=2, help="Words in a row that make an overlap.")
    ] = 13,
    min_words: Annotated[
        int,
        typer.Option(
            "--min-words", min=1, help="Shorter questions are only compared as a whole text."
        ),
    ] = 8,
    min_share: Annotated[
        float,
        typer.Option(
            "--min-share",
            min=0.0,
            max=1.0,
            help="Least share of a question's n-grams that a row must hold.",
        ),
    ] = 0.0,
    question: Annotated[
        str | None,
        typer.Option("--question", metavar="COLUMN", help="Default: a usual name."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Of a folder or hub data set.")] = "train",
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="PATTERN", help="Which files; again for more."),
    ] = None,
    responses: Annotated[
        bool, typer.Option("--responses", help="Look through responses and plain text too.")
    ] = False,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Ids of each kind in the report.")
    ] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The report as JSON.")
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option("--clean", metavar="FILE", help="A copy without the rows that overlap."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Find benchmark questions in a training set.

    Exact copies and runs of 13 words, with counts and examples by id; the training set is streamed.
    """
    return _hand_over(
        "data_contamination",
        train,
        against=_names(against),
        benchmarks_from=benchmarks_from,
        ngram=ngram,
        min_words=min_words,
        min_share=min_share,
        column=question,
        split=split,
        files=files or [],
        responses=responses,
        num_examples=examples,
        out=out,
        clean=clean,
        as_json=as_json,
    )


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


@wandb_app.command("setup")
def wandb_setup(
    entity: Annotated[
        str | None, typer.Option("--entity", help="Whose project. Default: your own.")
    ] = None,
    project: Annotated[str, typer.Option("--project", help="Where runs are listed.")] = "workings",
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Settings to use with -c.")
    ] = Path("wandb.yaml"),
    offline: Annotated[
        bool, typer.Option("--offline", help="Record offline; `workings wandb sync` sends.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> int:
    """Take a key, and write the tracker's settings.

    The key comes from WANDB_API_KEY or WANDB_KEY, else it is asked for; no file of the project
    holds it.
    """
    return _hand_over(
        "wandb_setup",
        entity=entity,
        project=project,
        output=output,
        online=not offline,
        force=force,
    )


@wandb_app.command("sync")
def wandb_sync(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Runs, or a tree.")],
    project: Annotated[str | None, typer.Option("--project", help="Another project.")] = None,
    entity: Annotated[str | None, typer.Option("--entity", help="Another entity.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was sent before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
) -> int:
    """Send runs that were recorded offline.

    Every offline run below the folders, by wandb's own `wandb sync`.
    """
    return _hand_over(
        "wandb_sync", folders, project=project, entity=entity, again=again, dry_run=dry_run
    )


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


def _start_grid(
    config: list[str] | None,
    arguments: list[str],
    grid: list[str],
    *,
    dry_run: bool,
    resume: str | None,
    fresh: bool,
) -> int:
    from workings.cli.evaluation_grid import compose_cells, grid_values
    from workings.config.dump import dump_yaml

    cells = compose_cells(config or [], overrides_from(arguments, "eval"), grid_values(grid))
    for note in dict.fromkeys(note for cell in cells for note in cell.notes):
        write_note(note)
    if dry_run:
        write_data("---\n".join(dump_yaml(cell.config) for cell in cells))
        return 0
    return _hand_over("eval", cells[0].config, resume=resume, fresh=fresh, cells=cells)


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


def _names(text: str | None) -> list[str]:
    """The names in a list with commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


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
