"""Commands that make a run: training, evaluation, samples, a server."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from workings.cli.apps.shared import (
    PASS_ON,
    Configs,
    DryRun,
    Resume,
    composed,
    hand_over,
    print_configuration,
    start,
    start_grid,
)
from workings.cli.options import overrides_from
from workings.cli.settings_help import RunCommand
from workings.errors import ConfigError

app = typer.Typer()


@app.command(cls=RunCommand, context_settings=PASS_ON)
def sft(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Fine-tune on demonstrations."""
    return start("sft", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=PASS_ON)
def dpo(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Learn from pairs of a better and a worse response (DPO)."""
    return start("dpo", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=PASS_ON)
def grpo(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Learn from graded samples (GRPO)."""
    return start("grpo", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(name="expert-iteration", cls=RunCommand, context_settings=PASS_ON)
def expert_iteration(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """Sample, keep what is right, fine-tune on it, repeat."""
    return start("expert-iteration", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(cls=RunCommand, context_settings=PASS_ON)
def pipeline(
    ctx: typer.Context, config: Configs = None, dry_run: DryRun = False, resume: Resume = None
) -> int:
    """SFT, then GRPO from its result."""
    return start("pipeline", config, ctx.args, dry_run=dry_run, resume=resume)


@app.command(name="eval", cls=RunCommand, context_settings=PASS_ON)
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
        return hand_over("eval_regrade", regrade, overrides_from(ctx.args, "eval"))
    if grid:
        return start_grid(config, ctx.args, grid, dry_run=dry_run, resume=resume, fresh=fresh)
    run = composed("eval", config, ctx.args)
    if dry_run:
        return print_configuration(run)
    return hand_over("eval", run, resume=resume, fresh=fresh)


@app.command("eval-luffy", context_settings=PASS_ON)
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
    run = composed("eval", None, [*overrides, *ctx.args])
    module = importlib.import_module("workings.cli.commands.eval_luffy")
    flags = module.Flags(
        output=output_file,
        remove_system=remove_system,
        second_decides=add_oat_evaluate,
        either_decides=any_true,
    )
    return hand_over("eval_luffy", run, flags, fresh=fresh)


@app.command(context_settings=PASS_ON)
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
    run = composed("pipeline", config or ["quickstart"], ctx.args)
    if dry_run:
        return print_configuration(run)
    return hand_over("quickstart", run, resume=resume, fresh=fresh)


@app.command(cls=RunCommand, context_settings=PASS_ON)
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
    run = composed("sample", config, [*asked, *ctx.args])
    if dry_run:
        return print_configuration(run)
    return hand_over("sample", run, question=question)


@app.command(cls=RunCommand, context_settings=PASS_ON)
def serve(ctx: typer.Context, config: Configs = None, dry_run: DryRun = False) -> int:
    """Sample for a training run elsewhere.

    An engine behind an address, for a run with engine.name=server on another device or host.
    """
    run = composed("serve", config, ctx.args)
    if dry_run:
        return print_configuration(run)
    return hand_over("serve", run)
