r"""Answers that fall into parts at their top level: unions, lists, relations, names, `\\pm`.

`read` reads the parts; None is returned where there is nothing to split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from workings.grading.reading.answers import (
    Answer,
    Assignments,
    Collection,
    Complement,
    Expression,
    Infinity,
    Interval,
    Named,
    Region,
    Relation,
)
from workings.grading.reading.enumerations import continued
from workings.grading.reading.number import Number
from workings.grading.reading.regions import complement, intersection, region_of, united
from workings.grading.reading.relations import (
    is_constant,
    name_in,
    names_in_tuple,
    oriented,
    split_relation,
)
from workings.grading.reading.words import phrase_of
from workings.grading.text.braces import peel, split_top
from workings.grading.text.normalise import compact

Reader = Callable[[str], Answer]

MAX_ITEMS = 20_000
MAX_SIDES = 16
"""Longer chains of relations are no answers."""

_DISTANCE = re.compile(
    r"(?:\||\\lvert)\s*(?P<name>[a-zA-Z])\s*(?:(?P<sign>[+-])\s*(?P<centre>[^|a-zA-Z]+))?(?:\||\\rvert)"
)
_SQUARE = re.compile(r"(?P<name>[a-zA-Z])\s*\^\s*\{?2\}?")
LIST = (
    r",\s*(?:\\text\{\s*)?(?:and|or)(?![\w}])|[,;]|(?<![A-Za-z\\{])(?:and|or)(?![A-Za-z])"
    r"|\\(?:lor|vee)(?![a-zA-Z])"
)
"""What stands between the items of a list."""
_TIGHT_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))(?! )")
_KEPT_COMMA = "\x02"
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_SYMBOL = re.compile(r"[a-zA-Z](?:_\{?\w\}?)?|\\(?:theta|alpha|beta|lambda|mu|phi|omega|epsilon)")
_LEADING_PLUS = re.compile(r"(^|[(\[{,=])\s*\+\s*")


def read_parts(text: str, read: Reader) -> Answer | None:
    r"""The union, list, relation or pair of signs that `text` is.

    >>> read_parts(r"3 \le x < 5", str).name
    'x'
    """
    for reader in (_read_union, _read_list, _read_relation):
        answer = reader(text, read)
        if answer is not None:
            return answer
    if has_both_signs(text):
        return both_signs(text, read)
    return None


def _read_union(text: str, read: Reader) -> Answer | None:
    if "\\cup" in text:
        pieces, _ = split_top(text, r"\\cup(?![a-zA-Z])")
        if len(pieces) > 1 and split_relation(pieces[0])[1] == []:
            return united(read_items(pieces, read))
    if "\\setminus" in text or "\\backslash" in text or "\\mathbb" in text:
        pieces, _ = split_top(text, r"\\(?:setminus|backslash)(?![a-zA-Z])|(?<=\})\s*-(?=\s*\\\{)")
        if len(pieces) == 2 and phrase_of(pieces[0]) == "everything":
            removed = read(pieces[1])
            if isinstance(removed, Collection):
                return Complement(removed.items)
        if len(pieces) == 2:
            return _without_points(read(pieces[0]), read(pieces[1]))
    return None


def _one_chain(items: Sequence[Answer]) -> Relation | None:
    """Inequalities that go on from one another as one: "a < b and b < c"."""
    chain: Relation | None = None
    for item in items:
        if not isinstance(item, Relation) or "=" in item.operators:
            return None
        if chain is None:
            chain = item
        elif chain.sides[-1] == item.sides[0]:
            chain = Relation(chain.sides + item.sides[1:], chain.operators + item.operators)
        else:
            return None
    return chain


def _without_points(region: Answer, points: Answer) -> Answer | None:
    removed = region_of(points)
    if isinstance(points, Interval) and isinstance(removed, Region):
        rest = complement(removed)
        return None if rest is None else intersection((region, rest))
    if not isinstance(points, Collection) or points.brackets != "{}" or region_of(region) is None:
        return None
    return intersection((region, Complement(points.items)))


def _read_list(text: str, read: Reader) -> Answer | None:
    pieces, separators = split_top(text, LIST)
    if len(pieces) < 2:
        return None
    if any(separator != "," for separator in separators) or ", " in text:
        pieces, separators = split_top(_TIGHT_THOUSANDS.sub(_KEPT_COMMA, text), LIST)
        pieces = [piece.replace(_KEPT_COMMA, ",") for piece in pieces]
    pieces = [piece for piece in pieces if piece]
    if len(pieces) < 2 or len(pieces) > MAX_ITEMS:
        return read(pieces[0]) if len(pieces) == 1 else None
    items = read_items(pieces, read, expand=True)
    items = continued(items) or items
    chain = _one_chain(items)
    if chain is not None:
        return chain
    named_items = [item for item in items if isinstance(item, Named)]
    if len(named_items) == len(items):
        return assigned(named_items, separators)
    if named_items == [items[0]]:  # "x = 2, 5": the name holds for all
        first = named_items[0]
        rest = Collection((first.answer, *items[1:]), "")
        return Named(first.name, rest, first.relation)
    if _are_alternatives(separators) or all(isinstance(item, Complement) for item in items):
        return _one_region(items, separators) or Collection(items, "")
    return Collection(items, "")


def _read_relation(text: str, read: Reader) -> Answer | None:
    sides, signs = split_relation(text)
    if not signs or len(sides) > MAX_SIDES:
        return None
    if sides[0] == "" and signs in (["="], [r"\approx"]):
        return read(sides[1])
    if "\\in" in signs:
        name = name_in(sides[0])
        if name is None or len(signs) > 1:
            return None
        return named(name, sides[1], sides[0], read)
    relation = oriented(sides, signs)
    if relation is None:
        return None
    if relation.operators in (("=",), ("~",)):
        name = name_in(sides[0])
        if name is not None and sides[1]:
            return named(name, sides[1], sides[0], read)
        other = name_in(sides[1])
        if other is not None and is_constant(sides[0]):
            return named(other, sides[0], sides[1], read)
        return relation
    return _named_region(relation, read) or relation


def _named_region(relation: Relation, read: Reader) -> Answer | None:
    """`2 < x <= 5` as the interval in which x lies, named x; None for any other chain."""
    sides, operators = relation.sides, relation.operators
    if len(sides) == 2 and operators[0] in ("<", "<="):
        for place, is_outside in ((0, False), (1, True)):
            if is_constant(sides[1 - place]):
                around = _around_a_point(sides[place], sides[1 - place], relation, read)
                if around is not None:
                    return around.outside if is_outside else around.inside
    symbols = [place for place, side in enumerate(sides) if _SYMBOL.fullmatch(side)]
    symbols = [place for place in symbols if sides[place] not in ("e", "i")]
    if len(symbols) != 1 or len(sides) > 3 or (len(sides) == 3 and symbols != [1]):
        return None
    place = symbols[0]
    if not all(is_constant(side) for index, side in enumerate(sides) if index != place):
        return None
    name = compact(sides[place])
    ends = {index: read(side) for index, side in enumerate(sides) if index != place}
    if operators == ("!=",):
        return Named(name, Complement((next(iter(ends.values())),)), relation)
    if not set(operators) <= {"<", "<="}:
        return None
    low = ends.get(place - 1, Infinity(-1))
    high = ends.get(place + 1, Infinity(1))
    has_low = place > 0 and operators[place - 1] == "<="
    has_high = place < len(sides) - 1 and operators[place] == "<="
    return Named(name, Region((Interval(low, high, has_low, has_high),)), relation)


@dataclass(frozen=True, slots=True)
class _Around:
    """Where a variable lies that is closer to a point than some radius, or farther away."""

    inside: Named
    outside: Named


def _around_a_point(side: str, radius: str, relation: Relation, read: Reader) -> _Around | None:
    r"""What `|x - a| < r` and `x^2 < r` say of x; None for any other side, or an end unknown."""
    bars, square = _DISTANCE.fullmatch(side), _SQUARE.fullmatch(side)
    is_closed = relation.operators[0] == "<="
    if bars is not None:
        distance, centre = read(radius), read(bars["centre"] or "0")
        if not (isinstance(distance, Number) and isinstance(centre, Number)):
            return None
        middle = centre.value if bars["sign"] == "-" else -centre.value
        if distance.value <= 0:
            return None
        ends: list[Answer] = [
            Number(value=middle + sign * distance.value, kind="exact") for sign in (-1, 1)
        ]
        name = bars["name"]
    elif square is not None:
        value = read(radius)
        if not isinstance(value, Number) or value.value <= 0:
            return None
        roots = [isqrt(part) for part in (value.value.numerator, value.value.denominator)]
        root = Fraction(*roots)
        if root * root == value.value:
            ends = [Number(value=sign * root, kind="exact") for sign in (-1, 1)]
        else:
            ends = [read(rf"{sign}\sqrt{{{radius}}}") for sign in ("-", "")]
        name = square["name"]
    else:
        return None
    inside = Region((Interval(ends[0], ends[1], is_closed, is_closed),))
    outside = Region(
        (
            Interval(Infinity(-1), ends[0], has_low=False, has_high=is_closed),
            Interval(ends[1], Infinity(1), has_low=is_closed, has_high=False),
        )
    )
    return _Around(Named(name, inside, relation), Named(name, outside, relation))


def read_items(pieces: Sequence[str], read: Reader, *, expand: bool = False) -> tuple[Answer, ...]:
    r"""The pieces, read; with `expand` a piece with `\pm` gives two of them."""
    items: list[Answer] = []
    for piece in pieces:
        item = read(peel(piece) or piece)
        values = item.answer if isinstance(item, Named) else item
        if not (expand and has_both_signs(piece) and isinstance(values, Collection)):
            items.append(item)
        elif isinstance(item, Named):
            items.extend(Named(item.name, value, item.relation) for value in values.items)
        elif values.brackets == "":
            items.extend(values.items)
        else:
            items.append(item)
    return tuple(items)


def has_both_signs(text: str) -> bool:
    r"""True where `\pm` or `\mp` stands in `text`."""
    return _PLUS_MINUS.search(text) is not None


def both_signs(text: str, read: Reader) -> Collection:
    r"""The two values of a text with `\pm`; all its signs go together."""
    plus = text.replace("\\pm", "+").replace("\\mp", "-")
    minus = text.replace("\\pm", "-").replace("\\mp", "+")
    plus = _LEADING_PLUS.sub(r"\1", plus)
    return Collection((read(plus.strip()), read(minus.strip())), "")


def named(name: str, body: str, label: str, read: Reader) -> Answer:
    """The answer behind a name, or the values of the names of a tuple."""
    answer = read(body)
    names = names_in_tuple(name)
    values = answer.items if isinstance(answer, Collection) and answer.is_ordered else ()
    if names and len(values) == len(names):
        return Assignments(names, values)
    return Named(name, answer, Relation((label.strip(), body), ("=",)))


def assigned(items: Sequence[Named], separators: Sequence[str] = ()) -> Answer:
    """Named items as one answer: what is said of one name, or values of several."""
    names = [item.name for item in items]
    answers = [item.answer for item in items]
    if len(set(names)) == 1:
        one = _one_region(answers, separators) or Collection(tuple(answers), "")
        return Named(names[0], one, items[0].relation)
    if len(set(names)) == len(names):
        return Assignments(tuple(names), tuple(answers))
    return Collection(tuple(items), "")


def _one_region(answers: Sequence[Answer], separators: Sequence[str]) -> Answer | None:
    """Conditions on one variable as a part of the line: "or" joins them, "and" lets them meet.

    A comma, and an "and" between conditions that exclude one another, are read as they must be
    meant: "x > 2, x < 5" is an interval and "x < 2, x > 5" a union.
    """
    if all(isinstance(answer, Complement) for answer in answers):
        return Complement(
            tuple(point for a in answers if isinstance(a, Complement) for point in a.points)
        )
    kinds = (Region, Interval, Complement)
    if _are_alternatives(separators) and any(isinstance(answer, kinds) for answer in answers):
        points = tuple(answer for answer in answers if isinstance(answer, (Number, Expression)))
        pieces = [answer for answer in answers if not isinstance(answer, (Number, Expression))]
        return united((*pieces, Collection(points, "{}")))
    if not all(isinstance(answer, kinds) for answer in answers):
        return None
    if not _are_alternatives(separators):
        meeting = intersection(answers)
        if meeting is not None and meeting.parts:
            return meeting
        if meeting is not None and "and" in separators:
            return meeting  # nothing is below -1 and above 3
    return united(answers)


def _are_alternatives(separators: Sequence[str]) -> bool:
    return bool(separators) and all(
        "or" in separator or separator == "\\vee" for separator in separators
    )
