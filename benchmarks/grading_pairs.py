"""Pairs of a gold answer and a response, with the verdict that mathematics asks for.

From a data set's golds the pairs are made mechanically: the gold itself, the gold written another
way, and the gold with one digit changed. From a case file they are read as they stand.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet
from grading_styles import restyled

ROOT = Path(__file__).parents[1]
OWN_CASES = ROOT / "tests" / "cases" / "grading_cases.jsonl"
VISIBLE_CASES = ROOT.parent / "shared" / "spec" / "grader_cases.jsonl"
SAME, RESTYLED, CHANGED = "gold itself", "typographic variant", "one digit changed"
ADVERSARIAL = "adversarial"
PROSE_LENGTH = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One thing to grade.

    Attributes:
        id: where it comes from, unique within its set.
        kind: what was done to the gold, or the kind of a hand-written case.
        expected: True where the response is right.
        debatable: True where people may disagree; no count holds such a pair.
        style: of a typographic variant, what was done.
    """

    id: str
    kind: str
    gold: str
    response: str
    expected: bool
    debatable: bool = False
    style: str | None = None


# -------------------------------------------------------------------------------- sets of pairs


def data_folder() -> Path:
    """The folder of data sets: `WORKINGS_DATA_DIR`, else `../shared/data` beside the clone."""
    return Path(os.environ.get("WORKINGS_DATA_DIR") or ROOT.parent / "shared" / "data")


def golds_of(folder: Path, dataset: str, *, most: int | None = None) -> list[str]:
    """The answers of a data set in its order; `most` of them, evenly spaced, where it has more."""
    golds: list[str] = parquet.read_table(folder / f"{dataset}.parquet")["answer"].to_pylist()
    if most is None or len(golds) <= most:
        return golds
    return [golds[index * len(golds) // most] for index in range(most)]


def pairs_of(dataset: str, golds: Sequence[str], *, seed: int = 0) -> list[Pair]:
    """For every gold: itself, one typographic variant, and one changed digit where it has one.

    An empty gold gives none: there is nothing that could agree with it.
    """
    pairs = []
    for index, gold in enumerate(golds):
        if not gold.strip():
            continue
        source = random.Random(f"{seed}/{dataset}/{index}")
        style, variant = restyled(gold, source)
        changed = with_a_digit_changed(gold, source)
        for kind, answer in ((SAME, gold), (RESTYLED, variant), (CHANGED, changed)):
            if answer is not None:
                pairs.append(
                    Pair(
                        id=f"{dataset}/{index}/{kind}",
                        kind=kind,
                        gold=gold,
                        response=response_with(answer, source),
                        expected=kind != CHANGED,
                        style=style if kind == RESTYLED else None,
                    )
                )
    return pairs


def read_cases(path: Path) -> list[Pair]:
    """The cases of a JSONL file that ask for a box, as those of other policies have no peer.

    A response may hold any line separator but a line feed.
    """
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [
        Pair(
            id=row["id"],
            kind=row["kind"],
            gold=row["gold"],
            response=_response_of(row.get("response"), row.get("response_parts")),
            expected=row["expected"],
            debatable=row["debatable"],
        )
        for row in rows
        if row.get("policy", "boxed") == "boxed"
    ]


def _response_of(text: str | None, parts: Sequence[tuple[str, int]] | None) -> str:
    return text if text is not None else "".join(part * count for part, count in parts or ())


# ---------------------------------------------------------------------------- one digit changed

_WORDS_OR_NAMES = re.compile(
    r"\\(?:text|mbox|textbf|mathrm|color|hspace|phantom)\s*\{[^{}]*\}(?:\^\{?\d+\}?)?"
    r"|_(?:\{[^{}]*\}|\w)"
)
_RELATION = re.compile(r"=|\\approx(?![a-zA-Z])")
_FREE = re.compile(r"\^(?:\{0\}|0(?!\d))|(?<![\d.])[01]\)?\^|\\frac\{0\}|(?<![\d.])0 ?/")


def with_a_digit_changed(gold: str, source: random.Random) -> str | None:
    r"""`gold` with another value because one digit of it is another; None where it has no digit.

    Digits of words, names and indices stay: `x_1` for `x_2` need not be a mistake. After an equals
    sign stands the value, and in front of it perhaps a false step that leads to the right one, so
    only the value is changed. No digit becomes 0, which could make leading zeros or terms that
    vanish; a gold where a digit is free, such as the 3 of `3^0`, is left alone.

    >>> with_a_digit_changed("10", random.Random(0))
    '17'
    >>> with_a_digit_changed("x = 5", random.Random(0))
    'x = 8'
    >>> with_a_digit_changed("i^7 = -i", random.Random(0)) is None
    True
    >>> with_a_digit_changed("5^0", random.Random(0)) is None
    True
    """
    if _FREE.search(gold):
        return None
    kept = {place for match in _WORDS_OR_NAMES.finditer(gold) for place in range(*match.span())}
    places = [
        place
        for place, character in enumerate(gold)
        if character in "0123456789" and place not in kept
    ]
    value = max((match.end() for match in _RELATION.finditer(gold)), default=0)
    places = [place for place in places if place >= value]
    if not places:
        return None
    place = source.choice(places)
    digit = source.choice([digit for digit in "123456789" if digit != gold[place]])
    return gold[:place] + digit + gold[place + 1 :]


# --------------------------------------------------------------------------------------- responses

SENTENCES = (
    "Let me set up the quantities that the problem gives us before doing any arithmetic.",
    "We start from what is known and write it as $a + b = {0}$ with $a = {1}$.",
    "Subtracting on both sides leaves ${0} - {1}$, which we keep for later.",
    "Notice that the second condition restricts the range to values below ${0}$.",
    "Suppose for a moment that the first unknown were ${1}$; this leads to a contradiction.",
    "Multiplying through by ${2}$ clears the denominators.",
    "The product of the two factors is ${1} \\cdot {2}$, so neither of them can vanish.",
    "It helps to check a small case first: for $n = {2}$ the claim holds.",
    "By symmetry the other case is treated in the same way, and gives nothing new.",
    "Rewriting the left-hand side as $\\frac{{{0}}}{{{1}}}$ makes the pattern visible.",
    "Now we substitute this back into the first equation and collect terms.",
    "Each step so far can be reversed, hence no solution has been lost.",
    "To be safe, let us verify this with a rough estimate: about ${0}$ in total.",
    "Taking the square of both sides gives $t^2 = {0}$, where $t$ is positive.",
    "There are {2} groups, and every group contributes the same amount.",
    "Wait, we should double-check whether the endpoint itself is allowed.",
    "The remaining sum is $\\sum_{{k=1}}^{{{2}}} k$, which is easy to write in closed form.",
    "Combining the two observations, only one candidate is left.",
)
ENDINGS = (
    "Therefore, the final answer is $\\boxed{{{0}}}$.",
    "So the answer is:\n\\[\n\\boxed{{{0}}}\n\\]",
    "**Final answer:** \\boxed{{{0}}}",
    "Hence the answer is $\\boxed{{{0}}}$",
)


def response_with(answer: str, source: random.Random, *, length: int = PROSE_LENGTH) -> str:
    """A response that argues for about `length` characters and ends with `answer` in a box."""
    sentences = "".join(_argument(source, length))
    endings = ENDINGS[2:3] if "$" in answer else ENDINGS  # no dollars inside of dollars
    return sentences + "\n" + source.choice(endings).format(answer)


def _argument(source: random.Random, length: int) -> Iterator[str]:
    written = 0
    while written < length:
        numbers = (source.randint(11, 99), source.randint(2, 49), source.randint(2, 9))
        sentence = source.choice(SENTENCES).format(*numbers) + source.choice((" ", " ", "\n\n"))
        written += len(sentence)
        yield sentence
