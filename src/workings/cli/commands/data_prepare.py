"""`workings data prepare`: a known data set ready to train on, with counts and a card."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.data.contamination import ContaminationIndex, OverlapRule
from workings.data.preparation.made import difference
from workings.data.preparation.prepare import Request, prepare
from workings.data.preparation.recipe import (
    CountTokens,
    Recipe,
    Settings,
    option_name,
    read_system_prompt,
)
from workings.data.preparation.recipes import BENCHMARKS, recipe_named
from workings.data.preparation.source import find_source
from workings.errors import ConfigError, DataError

PACKAGES = ("workings", "pyarrow", "tokenizers", "transformers")


def run(
    name: str,
    *,
    origin: str | None,
    out: Path | None,
    files: Sequence[str],
    settings: Mapping[str, object],
    limit: int | None,
    sets: Sequence[str],
    against: Sequence[str],
    ngram: int,
    min_share: float,
    drop_contaminated: bool,
    force: bool,
    dry_run: bool,
) -> int:
    """Prepare the data set; the paths of the folders that were made go to stdout."""
    if name == BENCHMARKS:
        given = {**settings, "limit": limit, "files": files, "check_contamination": against}
        unused = [option for option, value in given.items() if value]
        if unused:
            raise ConfigError(f"{option_name(unused[0])} does nothing for {BENCHMARKS}")
        return _benchmarks(origin, out, sets, force=force, dry_run=dry_run)
    recipe = recipe_named(name)
    if sets:
        raise ConfigError(f"--sets is for {BENCHMARKS}; {name} is one set")
    if drop_contaminated and not against:
        raise ConfigError("--drop-contaminated needs --check-contamination BENCHMARK,...")
    effective = recipe.effective(settings)
    target = out or Path(recipe.folder)
    if dry_run:
        write_data(
            _plan(recipe, effective, origin, target, files, limit, against, drop_contaminated)
        )
        return 0
    source = find_source(
        origin or recipe.source, patterns=tuple(files) or recipe.patterns, split=recipe.split
    )
    write_note(source.describe())
    index = None
    if against:
        from workings.data.preparation.benchmarks import questions_of

        index = ContaminationIndex(
            questions_of(against, log=write_note), OverlapRule(n=ngram, min_share=min_share)
        )
    request = Request(
        recipe=recipe,
        settings=effective,
        source=source,
        target=target,
        limit=limit,
        system_text=None
        if effective.system_prompt is None
        else read_system_prompt(effective.system_prompt),
        contamination=index,
        drop_contaminated=drop_contaminated,
        replace=force,
        command=_command(
            name,
            {"from": origin, "out": out, **settings, "limit": limit},
            files=files,
            against=against,
            rule=("--ngram", ngram, "--min-share", min_share),
            drop=drop_contaminated,
        ),
        versions=_versions(),
    )
    if force or not target.exists():
        prepare(request, count_tokens=_token_counter(effective), log=write_note)
    elif (reason := difference(request)) is None:
        write_note(f"{target} holds this already, with the checksums of its card")
    else:
        raise DataError(
            f"{target} exists, and is not what this would make: {reason}",
            hint="choose another folder with --out, or replace this one with --force",
        )
    write_data(str(target))
    return 0


def _benchmarks(
    origin: str | None,
    out: Path | None,
    sets: Sequence[str],
    *,
    force: bool,
    dry_run: bool,
) -> int:
    """Each set into a folder of its own; one that is there stays unless `force`."""
    from workings.data.preparation.benchmarks import (
        FOLDER,
        prepare_benchmark,
        select_benchmarks,
    )

    folder = None if origin is None else Path(origin).expanduser()
    root = out or Path(FOLDER)
    benchmarks = select_benchmarks(sets, folder=folder)
    if dry_run:
        lines = [
            f"{b.name}: {', '.join(map(str, b.files)) or b.config.path} to {root / b.name}"
            for b in benchmarks
        ]
        write_data("\n".join(lines))
        return 0
    for benchmark in benchmarks:
        target = root / benchmark.name
        if target.exists() and not force:
            write_note(f"{target} is there and stays; --force makes it anew")
        else:
            prepare_benchmark(
                benchmark,
                target,
                replace=force,
                command=_command(BENCHMARKS, {"from": origin, "out": out, "sets": benchmark.name}),
                versions=_versions(),
                log=write_note,
            )
        write_data(str(target))
    return 0


def _plan(
    recipe: Recipe,
    settings: Settings,
    origin: str | None,
    target: Path,
    files: Sequence[str],
    limit: int | None,
    against: Sequence[str],
    drop: bool,
) -> str:
    """What would be done, without a look at the source."""
    values = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    shown = ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
    lines = [
        f"{recipe.name}: {recipe.about}",
        f"from: {origin or recipe.source} ({', '.join(files or recipe.patterns)})",
        *([f"limit: the first {limit:,} rows"] if limit is not None else []),
        f"to: {target}" + (" (exists)" if target.exists() else ""),
        f"settings: {shown or 'none'}",
        *(f"- {step.format(**values)}" for step in recipe.steps),
    ]
    if against:
        what = "left out and counted" if drop else "counted"
        lines.append(f"- rows that overlap with {', '.join(against)} are {what}")
    return "\n".join(lines)


def _token_counter(settings: Settings) -> CountTokens | None:
    """Counts prompt of r1_zero, response and EOS; without a question the response and EOS."""
    if settings.tokenizer is None:
        return None
    from workings.data.encoding import encode_demonstration
    from workings.data.special_tokens import special_tokens
    from workings.data.templates import load_template
    from workings.models.tokenizer import load_tokenizer
    from workings.types import Demonstration

    tokenizer = load_tokenizer(settings.tokenizer)
    template = load_template("r1_zero")
    special = special_tokens(tokenizer)

    def count(question: str, response: str) -> int:
        row = Demonstration(id="", question=question, response=response)
        return len(encode_demonstration(row, template, tokenizer, special=special).ids)

    return count


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _command(
    name: str,
    options: Mapping[str, object],
    *,
    files: Sequence[str] = (),
    against: Sequence[str] = (),
    rule: Sequence[object] = (),
    drop: bool = False,
) -> str:
    """The command that makes the same again."""
    words = ["workings", "data", "prepare", name]
    for option, value in options.items():
        if value is True:
            words.append(option_name(option))
        elif value is not None:
            words += [option_name(option), str(value)]
    for pattern in files:
        words += ["--files", pattern]
    if against:
        words += ["--check-contamination", ",".join(against), *map(str, rule)]
    if drop:
        words.append("--drop-contaminated")
    return shlex.join(words)
