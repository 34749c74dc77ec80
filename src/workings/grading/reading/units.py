"""Units of measure: what a name means and how two of them convert, exactly.

A unit is a product of powers of dimensions and a size: km/h is length^1 time^-1 of size 5/18. A
counted noun ("18 apples") is a dimension of its own, which converts into nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_SIZES: dict[str, dict[str, str]] = {  # dimension -> names of a unit -> its size in the base unit
    "length": {
        "micron": "1/1000000", "m meter metre 米": "1", "in inch": "127/5000",
        "ft foot": "381/1250", "yd yard": "1143/1250", "mi mile": "201168/125", "里": "500",
        "毫米": "1/1000", "厘米": "1/100", "分米": "1/10", "千米 公里": "1000",
    },
    "mass": {
        "g gram gm 克": "1", "kilo": "1000", "tonne 吨": "1000000", "千克 公斤": "1000",
        "毫克": "1/1000", "oz ounce": "45359237/1600000", "lb pound": "45359237/100000",
    },
    "time": {
        "s sec second 秒": "1", "min minute 分钟": "60", "h hr hour 小时": "3600",
        "day 天": "86400", "week 周": "604800",
    },
    "year": {"month": "1/12", "yr year 年": "1", "decade": "10", "century": "100"},
    "dollar": {"dollar usd buck": "1", "cent": "1/100"},
    "euro": {"euro eur": "1"},
    "pound sterling": {"gbp": "1", "pence penny": "1/100"},
    "yuan": {"yuan rmb cny 元": "1", "jiao 角": "1/10"},
    "yen": {"yen jpy": "1"},
    "rupee": {"rupee inr rs": "1"},
    "won": {"won krw": "1"},
    "angle": {"degree deg 度": "1"},
    "radian": {"radian rad": "1"},
    "celsius": {"celsius": "1"},
    "fahrenheit": {"fahrenheit": "1"},
    "temperature": {"K kelvin": "1"},
    "current": {"A ampere amp": "1"},
    "amount": {"mol mole": "1"},
    "gallon": {"gal gallon": "1", "quart": "1/4", "pint": "1/8", "cup": "1/16"},
    "electronvolt": {"eV electronvolt": "1"},
    "calorie": {"cal calorie": "1"},
    "byte": {"B byte": "1", "b bit": "1/8"},
    "unit": {"unit": "1"},
}  # fmt: skip
_DERIVED: dict[str, tuple[str, Fraction]] = {  # names -> what they stand for, in units above
    "N newton": ("kg m/s^2", Fraction(1)), "J joule": ("kg m^2/s^2", Fraction(1)),
    "W watt": ("kg m^2/s^3", Fraction(1)), "Pa pascal": ("kg/m s^2", Fraction(1)),
    "Hz hertz": ("s^-1", Fraction(1)), "C coulomb": ("ampere s", Fraction(1)),
    "V volt": ("kg m^2/s^3 ampere", Fraction(1)), "T tesla": ("kg/s^2 ampere", Fraction(1)),
    "F farad": ("ampere^2 s^4/kg m^2", Fraction(1)),
    "\\Omega ohm": ("kg m^2/s^3 ampere^2", Fraction(1)),
    "l L liter litre 升": ("m^3", Fraction(1, 1000)), "毫升": ("m^3", Fraction(1, 10**6)),
    "hectare 公顷": ("m^2", Fraction(10_000)), "Wh": ("kg m^2/s^2", Fraction(3600)),
    "atm atmosphere": ("kg/m s^2", Fraction(101_325)), "bar": ("kg/m s^2", Fraction(10**5)),
    "mph": ("mile/hour", Fraction(1)), "kph kmh": ("km/hour", Fraction(1)),
    "erg": ("kg m^2/s^2", Fraction(1, 10**7)), "dyne": ("kg m/s^2", Fraction(1, 10**5)),
}  # fmt: skip
_PREFIXED = {
    "m", "meter", "metre", "g", "gram", "s", "second", "A", "ampere", "amp", "K", "mol", "mole",
    "N", "newton", "J", "joule", "W", "watt", "Pa", "pascal", "Hz", "hertz", "C", "coulomb", "V",
    "volt", "T", "tesla", "F", "farad", "\\Omega", "ohm", "l", "L", "liter", "litre", "eV",
    "electronvolt", "cal", "calorie", "B", "byte", "b", "bit", "Wh",
}  # fmt: skip
_SIGNS = {"n": "1/1000000000", "\\mu ": "1/1000000", "m": "1/1000", "c": "1/100", "d": "1/10",
          "k": "1000", "M": "1000000", "G": "1000000000", "T": "1000000000000"}  # fmt: skip
_SPELT = {"nano": "1/1000000000", "micro": "1/1000000", "milli": "1/1000", "centi": "1/100",
          "deci": "1/10", "kilo": "1000", "mega": "1000000", "giga": "1000000000"}  # fmt: skip
_DEGREES = {"C": "celsius", "F": "fahrenheit", "K": "kelvin"}
_ANY_CASE = frozenset(
    ["kg", "km", "cm", "ft", "hr", "min", "sec", "oz", "lb", "lbs", "mph", "ml", "usd"]
)
_POUNDS = ("pound", "pounds", "gbp")
_PLURALS = {"feet": "foot", "inches": "inch", "hertz": "hertz", "celsius": "celsius",
            "pennies": "penny", "centuries": "century", "men": "man", "women": "woman",
            "people": "person", "children": "child"}  # fmt: skip
_NO_NOUNS = re.compile(
    r"squared|cubed|factorials?|hal(?:f|ves)|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?"
    r"|eighths?|ninths?|tenths?|hundredths?|thousandths?|hundreds?|thousands?|millions?|billions?"
    r"|doubled|tripled|halved|inverse|reciprocal|false|wrong|true|incorrect|maybe|perhaps|point"
    r"|negative|positive|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|nor|only|else|root|roots|power|power",
    re.IGNORECASE,
)
_NOUN = r"(?:\\mu\s*(?:\\Omega|[A-Za-z]+)|k?\\Omega|\\AA|[^\W\d_]+\.?)"
_POWER = r"(?:\s*\^\s*\{?\s*(?P<power>-?\s*\d)\s*\}?|\s+(?P<after>squared|cubed)\b)?"
_MICRO = re.compile(r"\\mu\s*")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_FACTOR = re.compile(
    rf"\s*(?P<over>/|\bper\b|每)?\s*(?:\\cdot|\*|-)?\s*"
    rf"(?P<word>(?:square|cubic|sq|cu)\b\.?|平方|立方)?\s*"
    rf"(?P<degrees>\^\s*\{{?\s*\\circ\s*\}}?|degrees?(?=\s+[CFKcfk]))?\s*"
    rf"(?P<name>{_NOUN}){_POWER}"
)

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of dimensions, and its size in their base units."""

    name: str
    dimensions: Dimensions
    size: Fraction
    is_known: bool


@lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    r"""The unit that `text` spells, a counted noun included; None where it spells none.

    >>> read_unit("square inches").size == read_unit("inch^2").size
    True
    >>> read_unit("km/h").size, read_unit("apples").dimensions
    (Fraction(5, 18), (('apple', 1),))
    """
    powers: dict[str, int] = {}
    size, position, is_known, sign = Fraction(1), 0, True, 1
    nouns: list[str] = []
    text = _FRACTION.sub(r"\1/\2", text).strip()
    while position < len(text):
        match = _FACTOR.match(text, position)
        if match is None:
            return None
        position = match.end()
        if match["over"]:
            sign = -1
        power = _power_of(match)
        if power == 0:
            return None
        name = _MICRO.sub(r"\\mu ", match["name"].rstrip("."))
        unit = _named(_DEGREES.get(name, name) if match["degrees"] else name)
        if unit is None:
            if (len(name) == 1 and name.isascii()) or _NO_NOUNS.fullmatch(name):
                return None
            nouns.append(_singular(name.lower()) if len(name) > 3 else name)
            is_known = False
            continue
        size *= unit.size ** (sign * power)
        for dimension, count in unit.dimensions:
            powers[dimension] = powers.get(dimension, 0) + sign * power * count
    if nouns:  # "red apples", "beats/lifetime": the words together are one dimension
        powers[" ".join(nouns)] = 1
    if not powers:
        return None
    dimensions = tuple(sorted((key, value) for key, value in powers.items() if value))
    return Unit(text.replace(" ^", "^"), dimensions, size, is_known)


def conversion(unit: Unit, other: Unit) -> Fraction | None:
    """How many `other` one `unit` is, exactly; None where they do not convert.

    "units" and "square units" stand for any length, and its square.

    >>> conversion(read_unit("m"), read_unit("cm"))
    Fraction(100, 1)
    >>> conversion(read_unit("kg"), read_unit("m")) is None
    True
    """
    if unit.dimensions == other.dimensions:
        return unit.size / other.size
    if "unit" in (unit.dimensions[0][0], other.dimensions[0][0]):
        lengths = [
            tuple(("length" if name == "unit" else name, power) for name, power in one.dimensions)
            for one in (unit, other)
        ]
        if lengths[0] == lengths[1]:
            return Fraction(1)
    if {"mass", "pound sterling"} == {unit.dimensions[0][0], other.dimensions[0][0]}:
        is_pound = all(one.name in _POUNDS for one in (unit, other))
        return Fraction(1) if is_pound else None  # "40 pounds" beside "£40"
    if not unit.is_known and not other.is_known and _same_noun(unit, other):
        return Fraction(1)
    return None


def _same_noun(unit: Unit, other: Unit) -> bool:
    """True where one names the other's noun more closely: "red apples" and "apples"."""
    names = [unit.dimensions[0][0].split(), other.dimensions[0][0].split()]
    return len(unit.dimensions) == len(other.dimensions) == 1 and (
        names[0][-1:] == names[1][-1:] and 1 in (len(names[0]), len(names[1]))
    )


def _power_of(match: re.Match[str]) -> int:
    power = int((match["power"] or "1").replace(" ", ""))
    if match["after"]:
        power = 3 if match["after"] == "cubed" else 2
    word = match["word"]
    if word:
        power *= 3 if word.startswith(("cu", "立")) else 2
    return power


@lru_cache(maxsize=4096)
def _named(name: str) -> Unit | None:
    """The unit of the tables that `name` is; signs keep their case, words have plurals too."""
    known = _TABLE.get(name)
    if known is None and (len(name) > 3 or name.lower() in _ANY_CASE):
        known = _TABLE.get(name.lower()) or _TABLE.get(_singular(name.lower()))
    if known is None and name.endswith("s") and len(name) > 2:
        known = _TABLE.get(name[:-1])
    return known


def _singular(name: str) -> str:
    if name in _PLURALS:
        return _PLURALS[name]
    if len(name) > 3 and name.endswith(("shes", "ches", "xes", "sses")):
        return name[:-2]
    if len(name) > 4 and name.endswith("ies"):
        return name[:-3] + "y"
    if len(name) > 3 and name.endswith("s") and not name.endswith("ss"):
        return name[:-1]
    return name


def _make_table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for dimension, sizes in _SIZES.items():
        for names, size in sizes.items():
            for name in names.split():
                table[name] = Unit(name, ((dimension, 1),), Fraction(size), is_known=True)
    table["kg"] = Unit("kg", (("mass", 1),), Fraction(1000), is_known=True)
    table["km"] = Unit("km", (("length", 1),), Fraction(1000), is_known=True)
    return table


_TABLE = _make_table()


def _add_derived() -> None:
    for names, (meaning, factor) in _DERIVED.items():
        unit = read_unit(meaning)
        assert unit is not None, meaning
        for name in names.split():
            _TABLE[name] = Unit(name, unit.dimensions, unit.size * factor, is_known=True)


def _add_prefixed() -> None:
    for name in sorted(_PREFIXED):
        unit = _TABLE[name]
        for prefix, size in (_SPELT if len(name) > 3 and name[0] != "\\" else _SIGNS).items():
            longer = Unit(prefix + name, unit.dimensions, unit.size * Fraction(size), is_known=True)
            _TABLE.setdefault(prefix + name, longer)


_add_derived()
_add_prefixed()
