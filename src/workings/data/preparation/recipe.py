"""What a recipe is: where its rows come from, what becomes of each, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

from workings.data.preparation.tally import Tally
from workings.data.preparation.written import SchemaOf
from workings.data.streaming import StreamedRow
from workings.errors import ConfigError, DataError

UNREADABLE = "unreadable"
CONTAMINATED = "contaminated"

CountTokens = Callable[[str, str], int]
"""Tokens of a question and its response, as they are trained on."""
IsContaminated = Callable[[str, str], bool]
"""Whether a row, by its question and its id, overlaps with a benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user may change about a recipe; None where the recipe has no such setting.

    Attributes:
        size: rows to select, held-out rows included.
        held_out: rows of these that go into the validation file.
        seed: of the choice of held-out rows.
        max_length: in tokens, with EOS.
        tokenizer: whose tokens; a folder, a hub id or a known name.
        exclude: a data set whose questions are left out.
        system_prompt: a file with the system message of every prompt.
        numeric_answers: leave out rows whose answer is no number.
    """

    size: int | None = None
    held_out: int | None = None
    seed: int | None = None
    max_length: int | None = None
    tokenizer: str | None = None
    exclude: str | None = None
    system_prompt: str | None = None
    numeric_answers: bool | None = None


SETTING_NAMES = tuple(setting.name for setting in fields(Settings))


@dataclass(slots=True, kw_only=True)
class Making:
    """What a recipe works with besides its rows.

    Attributes:
        settings: the effective ones.
        tally: where rows left out are counted.
        count_tokens: given where `settings.tokenizer` is set.
        excluded: keys (`questions.question_key`) of the questions to leave out.
        system_text: content of the file `settings.system_prompt`.
        is_contaminated: given where contaminated rows are to be dropped.
    """

    settings: Settings
    tally: Tally = field(default_factory=Tally)
    count_tokens: CountTokens | None = None
    excluded: Collection[bytes] = frozenset()
    system_text: str | None = None
    is_contaminated: IsContaminated | None = None

    def is_clean(self, question: str, row: StreamedRow, row_id: str) -> bool:
        """False, and counted, for a question that overlaps with a benchmark."""
        if self.is_contaminated is None or not self.is_contaminated(question, row_id):
            return True
        self.tally.drop(CONTAMINATED, row.place)
        return False


class Made(NamedTuple):
    """A row of the result: the file it goes into, and its columns."""

    file: str
    record: Mapping[str, object]


Make = Callable[[Iterator[StreamedRow], Making], Iterator[Made]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one known data set is prepared.

    Attributes:
        name: what `workings data prepare` calls it.
        about: one line.
        source: hub id of the published data.
        patterns, split: which of its files.
        folder: where it is written unless said otherwise.
        licence: of the published data, with where that was read.
        steps: what is done, one sentence each, for the card.
        columns: what is read of the source; None reads all.
        settings: the defaults; a setting that is None here and not in `optional` does not apply.
        optional: settings that apply and are unset by default.
        schemas: parquet file to a function that gives its arrow schema from the first row.
        question: gives the question of a written row, for the check of contamination.
        make: turns rows into rows, one after another where it can.
    """

    name: str
    about: str
    source: str
    patterns: tuple[str, ...]
    split: str
    folder: str
    licence: str
    steps: tuple[str, ...]
    make: Make
    question: Callable[[Mapping[str, object]], str]
    columns: tuple[str, ...] | None = None
    settings: Settings = field(default_factory=Settings)
    optional: tuple[str, ...] = ()
    schemas: Mapping[str, SchemaOf] = field(default_factory=dict)

    def effective(self, given: Mapping[str, object]) -> Settings:
        """The recipe's settings with what the user gave; ConfigError for one that does nothing."""
        defaults = asdict(self.settings)
        known = [name for name in SETTING_NAMES if defaults[name] is not None]
        known = sorted({*known, *self.optional})
        for name in given:
            if name not in known:
                options = ", ".join(option_name(name) for name in known) or "none of these"
                raise ConfigError(
                    f"{option_name(name)} does nothing for {self.name}",
                    hint=f"{self.name} has {options}",
                )
        return replace(self.settings, **given)  # type: ignore[arg-type]


def option_name(setting: str) -> str:
    """The option of the command line.

    >>> option_name("max_length")
    '--max-length'
    """
    return "--" + setting.replace("_", "-")


def usable(
    rows: Iterator[StreamedRow], making: Making, *, needs: Collection[str]
) -> Iterator[tuple[StreamedRow, Mapping[str, object]]]:
    """The readable rows with their values; counts all, and the broken ones as unreadable.

    DataError where the first row lacks one of the columns in `needs`.
    """
    first = True
    for row in rows:
        making.tally.read += 1
        if row.values is None:
            making.tally.drop(UNREADABLE, f"{row.place}: {row.fault}")
            continue
        if first:
            _require(row.values, needs)
            first = False
        yield row, row.values


def _require(values: Mapping[str, object], needs: Collection[str]) -> None:
    missing = [name for name in needs if name not in values]
    if missing:
        raise DataError(
            f"the source has no column {', '.join(map(repr, missing))}; "
            f"found: {', '.join(values)}; expected: {', '.join(needs)}",
            hint="another data set or split was given, or its columns have other names",
        )


def text_of(values: Mapping[str, object], column: str) -> str | None:
    """The text of a column without white space at its ends; None where it is empty or no text."""
    value = values.get(column)
    return value.strip() or None if isinstance(value, str) else None


def read_system_prompt(path: str) -> str:
    """The text of the file, white space at its ends left out."""
    file = Path(path).expanduser()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--system-prompt {file} cannot be read: {error}") from error
