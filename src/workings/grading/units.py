"""Units of measure: what a name means and how two of them convert, exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

# name -> (dimension, size in the dimension's base unit); plurals are made below.
_SIZES: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(size))
    for dimension, sizes in {
        "length": {
            "mm millimeter millimetre": "1/1000", "cm centimeter centimetre": "1/100",
            "dm decimeter decimetre": "1/10", "m meter metre": "1",
            "km kilometer kilometre": "1000",
            "inch": "127/5000", "ft foot": "381/1250", "yd yard": "1143/1250",
            "mi mile": "201168/125",
        },
        "mass": {
            "mg milligram": "1/1000", "g gram": "1", "kg kilogram": "1000", "tonne": "1000000",
            "oz ounce": "45359237/1600000", "lb pound": "45359237/100000",
        },
        "volume": {"ml milliliter millilitre": "1/1000", "l liter litre": "1"},
        "time": {
            "ms millisecond": "1/1000", "s sec second": "1", "min minute": "60",
            "h hr hour": "3600", "day": "86400", "week": "604800",
        },
        "dollar": {"dollar usd": "1", "cent": "1/100"},
        "euro": {"euro eur": "1"},
        "pound sterling": {"gbp": "1"},
        "yuan": {"yuan rmb cny 元": "1"},
        "yen": {"yen jpy": "1"},
        "angle": {"degree deg": "1"},
    }.items()
    for names, size in sizes.items()
    for name in names.split()
}  # fmt: skip
_PLURALS = {"feet": "foot", "inches": "inch", "in": "inch", "pence": "gbp"}
_POWER_WORD = re.compile(r"(square|cubic|sq)\.?\s+(?=\S)")
_POWER = re.compile(r"\^\{?([23])\}?$")


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit to a power; `size` in base units is None where the unit cannot convert."""

    dimension: str
    power: int
    size: Fraction | None


@lru_cache(maxsize=4096)
def read_unit(name: str) -> Unit | None:
    """The unit that `name` spells, a counted noun included; None where it spells none.

    >>> read_unit("square inches") == read_unit("inch^2")
    True
    >>> read_unit("apples")
    Unit(dimension='apple', power=1, size=None)
    """
    name = name.strip().rstrip(".")
    power = 1
    if word := _POWER_WORD.match(name):
        power = 3 if word[1] == "cubic" else 2
        name = name[word.end() :]
    elif mark := _POWER.search(name):
        power = int(mark[1])
        name = name[: mark.start()].rstrip()
    if not name:
        return None
    known = _SIZES.get(name) or _SIZES.get(_singular(name.lower()))
    if known is not None:
        dimension, size = known
        return Unit(dimension, power, size**power)
    if not name.replace(" ", "").replace("/", "").isalpha():
        return None
    return Unit(_singular(name.lower()), power, None)


def is_known_unit(name: str) -> bool:
    """True where `name` is a unit of the table, so that it needs no `\\text` to be read as one."""
    unit = read_unit(name)
    return unit is not None and unit.size is not None


def conversion(unit: Unit, other: Unit) -> Fraction | None:
    """How many `other` one `unit` is, exactly; None where they do not convert.

    >>> conversion(read_unit("m"), read_unit("cm"))
    Fraction(100, 1)
    >>> conversion(read_unit("kg"), read_unit("m")) is None
    True
    """
    if unit == other:
        return Fraction(1)
    if (unit.dimension, unit.power) != (other.dimension, other.power):
        return None
    if unit.size is None or other.size is None:
        return None
    return unit.size / other.size


def _singular(name: str) -> str:
    if name in _PLURALS:
        return _PLURALS[name]
    if len(name) > 3 and name.endswith("s") and not name.endswith("ss"):
        return name[:-1]
    return name
