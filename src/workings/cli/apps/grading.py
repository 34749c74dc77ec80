"""Commands that grade what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workings.cli.apps.shared import (
    PASS_ON,
    Configs,
    DryRun,
    composed,
    hand_over,
    print_configuration,
)

app = typer.Typer()


@app.command(context_settings=PASS_ON)
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
    run = composed("sample", config, ["--sampling.temperature=0", *ctx.args])
    if dry_run:
        return print_configuration(run)
    return hand_over("judge", folder, run)


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
    return hand_over(
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
