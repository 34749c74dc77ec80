"""`workings profile`: what a run needs, and how fast it is."""

from __future__ import annotations

from typing import Annotated

import typer

from workings.cli.apps.shared import (
    PASS_ON,
    Configs,
    composed,
    hand_over,
    kind_asked_for,
    whole_numbers,
)

app = typer.Typer(help="Measure what a run needs and how fast it is.", rich_markup_mode=None)


@app.command("memory", context_settings=PASS_ON)
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
    kind = kind_asked_for(config, default="grpo")
    return hand_over(
        "profile_memory",
        composed(kind, config, ctx.args),
        lengths=whole_numbers(lengths, "--lengths"),
        most_rows=most_rows,
        num_steps=steps,
        limit_gib=limit,
        compare=compare,
    )


@app.command("throughput", context_settings=PASS_ON)
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
    kind = kind_asked_for(config, default="grpo")
    return hand_over(
        "profile_throughput",
        composed(kind, config, ctx.args),
        num_steps=steps,
        num_warmup=warmup,
        peak_tflops=peak_tflops,
        as_json=as_json,
    )
