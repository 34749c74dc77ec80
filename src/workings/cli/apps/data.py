"""`workings data`: data sets listed, prepared, checked and filtered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workings.cli.apps.shared import (
    PASS_ON,
    Configs,
    composed,
    hand_over,
    names_in,
)

app = typer.Typer(help="List, prepare, check and filter data sets.", rich_markup_mode=None)

Ngram = Annotated[int, typer.Option("--ngram", min=2, help="Words in a row that make an overlap.")]
MinShare = Annotated[
    float,
    typer.Option(
        "--min-share",
        min=0.0,
        max=1.0,
        help="Least share of a question's n-grams that a row must hold.",
    ),
]


@app.command("filter-correct", context_settings=PASS_ON)
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
    run = composed("sft", config or ["cs336_sft"], ctx.args)
    return hand_over("filter_correct", run, source, output)


@app.command("list")
def data_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List the benchmarks.

    With their problems, the rule that they are counted by, where they come from, and the local copy
    that would be read. Nothing is downloaded.
    """
    return hand_over("data_list", as_json=as_json)


@app.command("prepare")
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
    ngram: Ngram = 13,
    min_share: MinShare = 0.0,
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
    return hand_over(
        "data_prepare",
        name,
        origin=origin,
        out=out,
        files=files or [],
        settings={key: value for key, value in settings.items() if value is not None},
        limit=limit,
        sets=names_in(sets),
        against=names_in(check_contamination),
        ngram=ngram,
        min_share=min_share,
        drop_contaminated=drop_contaminated,
        force=force,
        dry_run=dry_run,
    )


@app.command("contamination")
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
    ngram: Ngram = 13,
    min_words: Annotated[
        int,
        typer.Option(
            "--min-words", min=1, help="Shorter questions are only compared as a whole text."
        ),
    ] = 8,
    min_share: MinShare = 0.0,
    question: Annotated[
        str | None,
        typer.Option(
            "--question", metavar="COLUMN", help="Where the question stands. Default: a usual name."
        ),
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
    A question of multiple choice is compared with its choices.
    """
    return hand_over(
        "data_contamination",
        train,
        against=names_in(against),
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
