"""Write the measured numbers of README and documentation from benchmarks/results/*.json.

    python benchmarks/report.py [--check]

A number lives in its results file and nowhere else. A file holds
{"benchmark", "date", "commit", "command", "machine", "versions", "results": [{"name", "value",
"unit", "low", "high", "n", "seeds", "peer", "peer_value", "ratio", "note"}]}; fields that do not
apply are left out, and "notes" may hold sentences for the page of all results. `--check` changes
nothing, and ends with 1 where a page is not up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from generators.blocks import Blocks, table, write_or_check  # noqa: E402 - needs the path above

RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "images" / "quickstart.png"
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "guides" / "quickstart.md"
INTERVALS = ROOT / "docs" / "concepts" / "intervals.md"
ALL_RESULTS = ROOT / "docs" / "reference" / "results.md"
NONE_YET = "Nothing has been measured yet: `benchmarks/results/` is empty."
NO_PICTURE = "The picture is drawn from the results, and there are none yet."
FIELDS = frozenset(
    {"name", "value", "unit", "low", "high", "n", "seeds", "peer", "peer_value", "ratio", "note"}
)
BY_SEED = re.compile(r"(.+), seed (\d+)")
IN_TABLE = re.compile(r"(.+): (.+), by (.+)")  # TABLE: COLUMN, by LINE
# Shown on the page of all results, not in the README.
ONLY_IN_FULL = frozenset(
    {
        "learning",
        "learning_cpu",
        "learning_cpu_two_cores",
        "grading_pool",
        "grading_workers",
        "engine_refresh",
        "engine_correctness",
        "intervals",
    }
)
MAIN_VERSIONS = ("python", "torch", "transformers", "workings")


def blocks(folder: Path = RESULTS) -> Blocks:
    """Every generated block that holds a measured number or the picture of one."""
    files = read_results(folder)
    alt = "Accuracy of base, SFT, GRPO and control, and reward by step"
    picture = f"![{alt}](%s)" if PICTURE.is_file() else NO_PICTURE
    return {
        README: {
            "results": describe_all(
                [file for file in files if file["benchmark"] not in ONLY_IN_FULL], heading="###"
            ),
            "picture": picture.replace("%s", "docs/images/quickstart.png"),
        },
        QUICKSTART: {
            "results": describe_all(
                [file for file in files if file["benchmark"] == "quickstart"], heading="###"
            ),
            "picture": picture.replace("%s", "../images/quickstart.png"),
        },
        INTERVALS: {
            "coverage": describe_all(
                [file for file in files if file["benchmark"] == "intervals"],
                heading="###",
                in_full=True,
            )
        },
        ALL_RESULTS: {"all-results": describe_all(files, heading="##", in_full=True)},
    }


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The results files of a folder by name; ValueError says what is wrong with one."""
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in ("benchmark", "command", "results"):
            if key not in content:
                raise ValueError(f"{path} has no {key!r}; it has {', '.join(content)}")
        for row in content["results"]:
            unknown = row.keys() - FIELDS
            if unknown or not {"name", "value"} <= row.keys():
                raise ValueError(
                    f"{path}: a result has the fields {', '.join(row)}; expected name, value and "
                    f"some of {', '.join(sorted(FIELDS - {'name', 'value'}))}"
                )
        found.append(content)
    return found


def describe_all(files: Sequence[Mapping[str, Any]], *, heading: str, in_full: bool = False) -> str:
    """One section per file, or a sentence where there is none."""
    parts = [describe(file, heading=heading, in_full=in_full) for file in files]
    return "\n\n".join(parts) or NONE_YET


def describe(file: Mapping[str, Any], *, heading: str, in_full: bool = False) -> str:
    """The file's tables, above their conditions; those by name and all versions only in full.

    The heading names the GPU, where there was one: a benchmark may have a file for each.
    """
    results = file["results"]
    seeds = [row for row in results if BY_SEED.fullmatch(row["name"])]
    named = [row for row in results if IN_TABLE.fullmatch(row["name"])]
    others = [row for row in results if row not in seeds and row not in named]
    gpu = (file.get("machine") or {}).get("gpu")
    parts = [f"{heading} {file['benchmark']}" + (f", {gpu}" if gpu else "")]
    parts += [seeds_table(seeds)] if seeds else []
    parts += [results_table(others)] if others else []
    parts += [*named_tables(named), *file.get("notes", [])] if in_full else []
    return "\n\n".join([*parts, _conditions(file, all_versions=in_full)])


def seeds_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Results named "WHAT, seed N" as one line for WHAT and a column for each seed."""
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        match = BY_SEED.fullmatch(row["name"])
        assert match is not None
        interval = f" ({_interval(row)})" if row.get("low") is not None else ""
        value = with_unit(row["value"], row.get("unit")) + interval
        cells.setdefault(match[1], {})[int(match[2])] = value
    seeds = sorted({seed for line in cells.values() for seed in line})
    counts = {row.get("n") for row in rows}
    lines = [[what, *(line.get(seed, "") for seed in seeds)] for what, line in cells.items()]
    listed = table(["what", *(f"seed {seed}" for seed in seeds)], lines)
    known = counts != {None} and len(counts) == 1
    return listed + (f"\n\nIn brackets 95 % intervals; n = {_number(*counts)}." if known else "")


def named_tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Results named "TABLE: COLUMN, by LINE" as one table for each TABLE."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    counts: dict[tuple[str, str], int | None] = {}
    for row in rows:
        match = IN_TABLE.fullmatch(row["name"])
        assert match is not None
        title, column, line = match.groups()
        note = f" ({row['note']})" if row.get("note") is not None else ""
        value = with_unit(row["value"], row.get("unit")) + note
        tables.setdefault(title, {}).setdefault(line, {})[column] = value
        counts[title, column] = row.get("n")
    written = []
    for title, lines in tables.items():
        columns = list(dict.fromkeys(column for cells in lines.values() for column in cells))
        heads = [
            f"{column}, n = {_number(counts[title, column])}" if counts[title, column] else column
            for column in columns
        ]
        cells = [
            [line, *(found.get(column, "") for column in columns)] for line, found in lines.items()
        ]
        written.append(table([title, *heads], cells))
    return written


def results_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each result, with the columns that any of them needs."""
    columns = [column for column in COLUMNS if any(column.shows(row) for row in rows)]
    return table(
        [column.title for column in columns],
        [[column.text(row) for column in columns] for row in rows],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table: what it is called, the fields that fill it, and how they are said."""

    title: str
    fields: tuple[str, ...]
    words: Callable[[Mapping[str, Any]], str]

    def shows(self, row: Mapping[str, Any]) -> bool:
        """True where the result has something to say here."""
        return any(row.get(field) is not None for field in self.fields)

    def text(self, row: Mapping[str, Any]) -> str:
        """The cell, empty where there is nothing to say."""
        return self.words(row) if self.shows(row) else ""


def _plain_column(title: str, field: str) -> Column:
    return Column(title=title, fields=(field,), words=lambda row: _plain(row[field]))


def _interval(row: Mapping[str, Any]) -> str:
    return f"{_number(row.get('low'))} to {_number(row.get('high'))}"


def _peer(row: Mapping[str, Any]) -> str:
    return f"{row.get('peer') or ''} {_number(row.get('peer_value'))}".strip()


COLUMNS: tuple[Column, ...] = (
    _plain_column("what", "name"),
    Column(
        title="value",
        fields=("value",),
        words=lambda row: with_unit(row["value"], row.get("unit")),
    ),
    Column(title="95 % interval", fields=("low", "high"), words=_interval),
    _plain_column("n", "n"),
    _plain_column("seeds", "seeds"),
    Column(title="compared with", fields=("peer", "peer_value"), words=_peer),
    _plain_column("ratio", "ratio"),
    _plain_column("note", "note"),
)


def with_unit(value: object, unit: str | None) -> str:
    """A number with its unit.

    >>> with_unit(82.4, "%"), with_unit(21600, "tokens/s"), with_unit(0.5, None)
    ('82.4 %', '21,600 tokens/s', '0.5')
    """
    return _number(value) if not unit else f"{_number(value)} {unit}"


def _number(value: object) -> str:
    """Thousands in groups, and four digits that count.

    >>> _number(21600), _number(71.33333), _number(0.00123456), _number(None), _number(0)
    ('21,600', '71.33', '0.001235', '', '0')
    """
    if value is None:
        return ""
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value) if isinstance(value, str) else _number(value)


def _conditions(file: Mapping[str, Any], *, all_versions: bool) -> str:
    versions = file.get("versions") or {}
    if not all_versions:
        versions = {key: value for key, value in versions.items() if key in MAIN_VERSIONS}
    parts = [f"`{file['command']}`"]
    parts += [f"on {_listed(file['machine'])}"] if file.get("machine") else []
    parts += [f"commit {str(file['commit'])[:12]}"] if file.get("commit") else []
    parts += [_listed(versions)] if versions else []
    parts += [str(file["date"])] if file.get("date") else []
    return f"Measured by {'; '.join(parts)}."


def _listed(value: object) -> str:
    """A description as text: a mapping becomes "torch 2.11, transformers 5.17"."""
    if isinstance(value, Mapping):
        named = ((str(key).replace("_", " "), _plain(inner)) for key, inner in value.items())
        return ", ".join(f"{key} {inner}" for key, inner in named if inner)
    return _plain(value)


def main(arguments: list[str]) -> int:
    """The exit code: 0, or 1 where `--check` found a page that is not up to date."""
    return write_or_check(blocks(), arguments, command="python benchmarks/report.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
