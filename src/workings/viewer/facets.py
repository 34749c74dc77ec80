"""What responses can be filtered by: one short row for each, held in memory as columns.

Reading it takes a second or two for 100,000 long rows, so a page without filters does without.
JSONL goes through Arrow's reader; a file in which a column has two types (a level that is a number
here and a text there, say) is read line by line instead, with the same outcome.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workings.viewer.beside import stored_lengths, stored_sources
from workings.viewer.parquet_rows import SHORT_COLUMNS, Row, parquet_file
from workings.viewer.rows import RowFile, from_json, json_object, open_rows, read_rows
from workings.viewer.versions import Version
from workings.viewer.whole_run import whole_run_rows

CLASSES = ("11", "10", "01", "00")
"""Format and answer, each right (1) or wrong (0)."""
ANSWER_CLASSES = ("1", "0")
"""The same of a file that says only whether a response is right, as those of `eval-luffy` do."""
RIGHT = ("11", "1")
LONG, LOOKED_AT = 20_000, 400
"""Rows from which on a JSONL file counts as long, and those of it that are looked at."""
_BLOCK = 1 << 25
Texts = np.ndarray[Any, np.dtype[np.object_]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facets:
    """Columns of one value per row; texts are "" and numbers NaN where nothing is stored.

    Attributes:
        problem: its id; "row N" where none is stored.
        source: of the problem, where several benchmarks are in one file.
        kind: one of `CLASSES` or `ANSWER_CLASSES`, "" where it was not graded.
        length: tokens of the response.
        truncated: whether it ran into the limit of tokens.
    """

    problem: Texts
    sample: Numbers
    source: Texts
    subject: Texts
    level: Texts
    verdict: Texts
    kind: Texts
    reward: Numbers
    length: Numbers
    truncated: np.ndarray[Any, np.dtype[np.bool_]]

    def choices(self, column: str) -> list[str]:
        """The values of a column of texts, sorted, numbers by size."""
        return _in_order(getattr(self, column))

    def rows_of(self, problem: str) -> list[int]:
        """The numbers of the rows of one problem, in order."""
        return [int(row) for row in np.flatnonzero(self.problem == problem)]


def read_facets(file: RowFile) -> Facets:
    """The facets of a file, kept in memory until the file changes."""
    return _facets(file.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a filter offers.

    Attributes:
        kinds: `CLASSES` or `ANSWER_CLASSES`.
        complete: whether the others are all that the file has.
    """

    sources: list[str]
    subjects: list[str]
    levels: list[str]
    kinds: tuple[str, ...]
    complete: bool


def choices_of(file: RowFile) -> Choices:
    """The values that the rows of a file have, kept in memory until the file changes.

    Of a long JSONL file only some rows are looked at, evenly over it, so that it opens at once.
    """
    return _choices(file.version)


@functools.lru_cache(maxsize=64)
def _choices(version: Version) -> Choices:
    file = open_rows(Path(version[0]))
    complete = file.offsets is None or file.num_rows <= LONG
    if complete:
        facets = read_facets(file)
        found = [facets.choices(name) for name in ("source", "subject", "level", "kind")]
    else:
        places = np.linspace(0, file.num_rows - 1, LOOKED_AT).astype(int).tolist()
        rows = read_rows(file, places)
        names = ("source", "subject", "level")
        found = [_in_order(row[name] or "" for row in rows) for name in names]
        found[0] = _in_order(stored_sources(file.path).values()) or found[0]
        found.append(_in_order(map(kind_of, rows)))
    sources, subjects, levels, kinds = found
    return Choices(
        sources=sources,
        subjects=subjects,
        levels=levels,
        kinds=ANSWER_CLASSES if kinds and set(kinds) <= set(ANSWER_CLASSES) else CLASSES,
        complete=complete,
    )


def kind_of(row: Mapping[str, Any]) -> str:
    """The class of a row, "11" and so on; "" where it was not graded or its gold is unusable."""
    if row["reward"] is None and row["format_reward"] is None:
        return "" if row["correct"] is None else str(int(row["correct"]))
    components = row["components"] or {}
    form, answer = row["format_reward"], row["answer_reward"]
    if form is None:
        form = components.get("format", components.get("match_format_exactly", 0.0))
    if answer is None:
        answer = components.get("answer", 1.0 if row["verdict"] == "equal" else 0.0)
    return f"{int(form > 0)}{int(answer > 0)}"


def _in_order(values: Iterable[str]) -> list[str]:
    """Each once, sorted, numbers by size before words; "" left out."""
    words = {value for value in values if value}
    return sorted(words, key=lambda one: (not one.isdecimal(), len(one) * one.isdecimal(), one))


@functools.lru_cache(maxsize=16)
def _facets(version: Version) -> Facets:
    path = Path(version[0])
    if path.suffix == ".json":
        return _from_rows([_short(row) for row in whole_run_rows(path)])
    if path.suffix == ".parquet":
        file = parquet_file(path)
        columns = [name for name in SHORT_COLUMNS if name in file.schema_arrow.names]
        return _from_table(file.read(columns=columns))
    table = _arrow_jsonl(path)
    facets = _from_lines(path) if table is None else _from_table(table)
    return _with_stored(facets, path)


def _with_stored(facets: Facets, path: Path) -> Facets:
    """The same with sources and lengths from the sampled responses, where the file has none."""
    added: dict[str, Any] = {}
    if not facets.source.any() and (sources := stored_sources(path)):
        added["source"] = np.array([sources.get(one, "") for one in facets.problem], dtype=object)
    if np.isnan(facets.length).all() and (lengths := stored_lengths(path)):
        keys = zip(facets.problem, facets.sample, strict=True)  # (p, 2.0) is the key (p, 2)
        added["length"] = np.array([lengths.get(key, np.nan) for key in keys], dtype=float)
    return replace(facets, **added)


def _arrow_jsonl(path: Path) -> Any:
    """The short columns as an Arrow table under parquet's names; None where Arrow refuses."""
    import pyarrow as pa
    import pyarrow.compute as compute
    import pyarrow.json

    text, number = pa.string(), pa.float64()
    rewards = pa.struct([(f"{name}reward", number) for name in ("format_", "answer_", "")])
    schema = pa.schema(
        [
            *((name, text) for name in ("id", "subject", "level", "verdict", "finish_reason")),
            *((name, text) for name in ("source", "data_source")),
            *(("sample", pa.int64()), ("response_tokens", pa.int64()), ("metrics", rewards)),
            *(("correct", pa.bool_()), ("correctness", pa.bool_())),
        ]
    )
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pyarrow.json.read_json(
            path, read_options=pyarrow.json.ReadOptions(block_size=_BLOCK), parse_options=parse
        )
    except pa.ArrowInvalid:
        return None
    table = table.rename_columns({"id": "problem_id", "response_tokens": "num_tokens"})
    for place, name in enumerate(("format_reward", "answer_reward", "reward")):
        column = compute.struct_field(table.column("metrics"), place)
        table = table.append_column(name, column)
    for name, other in (("source", "data_source"), ("correct", "correctness")):
        column = compute.coalesce(table.column(name), table.column(other))
        table = table.set_column(table.column_names.index(name), name, column)
    return table.drop_columns(["metrics", "data_source", "correctness"])


def _from_table(table: Any) -> Facets:
    import pyarrow.compute as compute

    def texts(name: str) -> Texts:
        if name not in table.column_names:
            return np.full(table.num_rows, "", dtype=object)
        filled = compute.fill_null(table.column(name), "")
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=object)

    def numbers(column: Any) -> Numbers:
        return np.asarray(column.cast("float64").to_numpy(zero_copy_only=False), dtype=np.float64)

    def stored(name: str) -> Numbers:
        known = name in table.column_names
        return numbers(table.column(name)) if known else np.full(table.num_rows, np.nan)

    def component(*keys: str) -> Numbers:
        found = np.full(table.num_rows, np.nan)
        for key in keys if "components" in table.column_names else ():
            one = numbers(compute.map_lookup(table.column("components"), key, "first"))
            found = np.where(np.isnan(found), one, found)
        return found

    def first_known(*columns: Numbers) -> Numbers:
        values = columns[0]
        for column in columns[1:]:
            values = np.where(np.isnan(values), column, values)
        return values

    verdict, reward = texts("verdict"), stored("reward")
    form = first_known(stored("format_reward"), component("format", "match_format_exactly"))
    equal = (verdict == "equal").astype(np.float64)
    answer = first_known(stored("answer_reward"), component("answer"), equal)
    # A comparison with NaN is False: no format reward counts as a wrong format.
    kind = np.where(form > 0, "1", "0").astype(object) + np.where(answer > 0, "1", "0")
    no_reward = np.isnan(reward) & np.isnan(stored("format_reward"))
    right = stored("correct")
    kind[no_reward] = np.where(np.isnan(right), "", np.where(right > 0, "1", "0"))[no_reward]
    problem = texts("problem_id")
    for row in np.flatnonzero(problem == ""):
        problem[row] = f"row {row}"
    return Facets(
        problem=problem,
        sample=stored("sample"),
        source=texts("source"),
        subject=texts("subject"),
        level=texts("level"),
        verdict=verdict,
        kind=kind,
        reward=reward,
        length=stored("num_tokens"),
        truncated=texts("finish_reason") == "length",
    )


def _from_lines(path: Path) -> Facets:
    """The same, line by line."""
    with path.open("rb") as file:
        return _from_rows([_short(json_object(path, line)) for line in file if line.strip()])


def _short(row: Mapping[str, Any]) -> Row:
    known = from_json(row)
    return {name: known[name] for name in (*SHORT_COLUMNS, *_REWARDS)}


def _from_rows(rows: Sequence[Row]) -> Facets:
    def texts(name: str) -> Texts:
        return np.array([row[name] or "" for row in rows], dtype=object)

    def numbers(name: str) -> Numbers:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)

    return Facets(
        problem=np.array(
            [row["problem_id"] or f"row {place}" for place, row in enumerate(rows)], dtype=object
        ),
        sample=numbers("sample"),
        source=texts("source"),
        subject=texts("subject"),
        level=texts("level"),
        verdict=texts("verdict"),
        kind=np.array([kind_of(row) for row in rows], dtype=object),
        reward=numbers("reward"),
        length=numbers("num_tokens"),
        truncated=texts("finish_reason") == "length",
    )


_REWARDS = ("format_reward", "answer_reward", "correct")
