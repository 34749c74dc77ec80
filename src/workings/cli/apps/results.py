"""Commands over several runs, and over what runs leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workings.cli.apps.shared import (
    PASS_ON,
    Configs,
    composed,
    hand_over,
    kind_asked_for,
    names_in,
)
from workings.cli.options import overrides_from

app = typer.Typer()


@app.command(context_settings=PASS_ON)
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
    kind = kind_asked_for(config, default="grpo")
    return hand_over(
        "sweep",
        kind,
        config or [],
        overrides_from(ctx.args, kind),
        zipped=together or [],
        jobs=jobs,
        devices=[] if devices is None else names_in(devices),
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
    return hand_over(
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
    return hand_over(
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
    return hand_over("view", folder, port=port, open_browser=open_browser, tokenizer=tokenizer)


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
    return hand_over("export", source, destination, format=format)


@app.command(context_settings=PASS_ON)
def doctor(ctx: typer.Context, config: Configs = None) -> int:
    """Say what works on this machine.

    Devices, versions, and what to install for what; with -c and settings, whether that run will
    work here.
    """
    run = None
    if config is not None or ctx.args:
        run = composed(kind_asked_for(config, default="grpo", rather="pipeline"), config, ctx.args)
    return hand_over("doctor", run)
