"""`key=a,b` on the command line as axes of a sweep, and the runs that they span.

    learning_rate=1e-5,3e-5 seed=range(3) data.template=think
    └───────── axis ──────┘ └── axis ───┘ └────── fixed ─────┘

Values are written in Hydra's grammar: `a,b,c`, `choice(a,b)` and `range(0,10,2)`. A list is one
value (`key=[1,2],[3]` has two), and a text with a comma is quoted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workings.errors import ConfigError

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._+-]+")
LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting and the values that it takes, each as it is written after `key=`."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The axes of a sweep, and the overrides that all of its runs have in common.

    `zipped` names axes that advance together; all others are combined with each other.
    """

    axes: tuple[Axis, ...]
    fixed: tuple[str, ...]
    zipped: tuple[tuple[str, ...], ...] = ()

    def points(self) -> list[dict[str, str]]:
        """{key: value} of every run; the last axis changes fastest.

        >>> Grid(
        ...     axes=(Axis(key="a", values=("1", "2")), Axis(key="b", values=("x", "y"))), fixed=()
        ... ).points()[1]
        {'a': '1', 'b': 'y'}
        """
        blocks = self._blocks()
        product = itertools.product(
            *(list(zip(*(a.values for a in b), strict=True)) for b in blocks)
        )
        order = [axis.key for axis in self.axes]
        points = []
        for combination in product:
            point = {
                axis.key: value
                for block, values in zip(blocks, combination, strict=True)
                for axis, value in zip(block, values, strict=True)
            }
            points.append({key: point[key] for key in order})
        return points

    def _blocks(self) -> list[list[Axis]]:
        """Axes that advance together, in the order in which their first one was given."""
        known = {axis.key: axis for axis in self.axes}
        together = {key: group for group in self.zipped for key in group}
        blocks: dict[str, list[Axis]] = {}
        for axis in self.axes:
            group = together.get(axis.key, (axis.key,))
            blocks.setdefault(group[0], [known[key] for key in group])
        return list(blocks.values())


def read_grid(overrides: Sequence[str], *, zipped: Sequence[Sequence[str]] = ()) -> Grid:
    """The overrides as axes and fixed settings.

    ConfigError where nothing varies, an axis holds a value twice, two axes are one key, or axes
    that are to advance together have different numbers of values.
    """
    axes: list[Axis] = []
    fixed: list[str] = []
    for text in overrides:
        values = read_values(text)
        if values is None:
            fixed.append(text)
            continue
        key = text.partition("=")[0].lstrip("+")
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise ConfigError(f"{text}: {', '.join(repeated)} stands there twice")
        if key in [axis.key for axis in axes]:
            raise ConfigError(f"{key} is given two lists of values", hint="write them as one list")
        axes.append(Axis(key=key, values=tuple(values)))
    if not axes:
        raise ConfigError(
            "nothing varies, so there is no sweep",
            hint="give a setting several values: optimizer.learning_rate=1e-5,3e-5",
        )
    grid = Grid(axes=tuple(axes), fixed=tuple(fixed), zipped=tuple(map(tuple, zipped)))
    _check_zipped(grid)
    return grid


def run_names(points: Sequence[dict[str, str]]) -> list[str]:
    """A folder's name for every run, made of the ends of its keys and of its values.

    >>> run_names([{"optimizer.learning_rate": "1e-5", "seed": "1"}])
    ['learning_rate_1e-5__seed_1']
    """
    short = _short_keys(list(points[0])) if points else {}
    names = [
        "__".join(f"{short[key]}_{_as_name(value)}" for key, value in point.items())
        for point in points
    ]
    width = len(str(len(names)))
    return [
        name
        if len(name) <= LONGEST_NAME and names.count(name) == 1
        else f"{number:0{width}}__{name[:LONGEST_NAME]}"
        for number, name in enumerate(names, start=1)
    ]


def read_values(text: str) -> list[str] | None:
    """The values of an override that varies; None of one that does not, or is not in the grammar.

    What the grammar cannot read may be a text setting, which composing reads as it is.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Transformer
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return None
    if not override.is_sweep_override():
        return None
    if not (override.is_choice_sweep() or override.is_range_sweep()):
        raise ConfigError(
            f"{text}: a sweep tries every value, so it needs a list of them",
            hint="write key=a,b,c, choice(a,b,c) or range(start,stop,step)",
        )
    values = override.sweep_iterator(transformer=Transformer.encode)
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def _check_zipped(grid: Grid) -> None:
    lengths = {axis.key: len(axis.values) for axis in grid.axes}
    seen: set[str] = set()
    for group in grid.zipped:
        for key in group:
            if key not in lengths:
                raise ConfigError(
                    f"--zip {','.join(group)}: {key} does not vary",
                    hint=f"what varies: {', '.join(lengths)}",
                )
            if key in seen:
                raise ConfigError(f"--zip: {key} stands there twice")
            seen.add(key)
        if len({lengths[key] for key in group}) > 1:
            counts = ", ".join(f"{key} has {lengths[key]}" for key in group)
            raise ConfigError(f"--zip needs as many values of each key; {counts}")


def _short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The shortest end of each key that no other one has."""
    short = {}
    for key in keys:
        parts = key.replace("@", ".").split(".")
        for length in range(1, len(parts) + 1):
            end = parts[-length:]
            if sum(other.replace("@", ".").split(".")[-length:] == end for other in keys) == 1:
                break
        short[key] = _as_name(".".join(end))
    return short


def _as_name(text: str) -> str:
    """`text` with nothing in it that a shell or a file system would mind."""
    return _NOT_IN_A_NAME.sub("-", text).strip("-.") or "empty"
