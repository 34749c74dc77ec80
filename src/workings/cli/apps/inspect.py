"""`workings inspect`: data, prompts and completions as the model sees them."""

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
)
from workings.errors import ConfigError

app = typer.Typer(help="Look at data and at sampled completions.", rich_markup_mode=None)


@app.command("data", context_settings=PASS_ON)
def inspect_data(
    ctx: typer.Context,
    config: Configs = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to show.")] = 3,
) -> int:
    """Show rows as the model sees them.

    Tokens, loss mask, template and stop strings, and below them what was checked; exit code 1 names
    every fault of EOS, BOS, prompt ids, lengths and packing.
    """
    kind = kind_asked_for(config, default="sft")
    return hand_over("inspect_data", composed(kind, config, ctx.args), limit=limit)


@app.command("prompts", context_settings=PASS_ON)
def inspect_prompts(
    ctx: typer.Context,
    config: Configs = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Prompts to show.")] = 3,
) -> int:
    """Show prompts as the model sees them.

    Of any data set and template, with the same checks as `inspect data`.
    """
    kind = kind_asked_for(config, default="grpo")
    return hand_over("inspect_prompts", composed(kind, config, ctx.args), limit=limit)


@app.command("rollouts", context_settings=PASS_ON)
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
        return hand_over("inspect_rollouts", Path(run), config=None, step=step, limit=limit)
    settings = ctx.args if run is None else [run, *ctx.args]
    fresh = composed("grpo", config, settings)
    return hand_over("inspect_rollouts", None, config=fresh, step=step, limit=limit)
