"""Which runs `key=a,b` makes, and what they are called."""

from __future__ import annotations

import doctest
import itertools

import pytest

from workings.errors import ConfigError
from workings.launch import sweep_axes
from workings.launch.sweep_axes import LONGEST_NAME, Axis, read_grid, run_names


def test_doctests() -> None:
    assert doctest.testmod(sweep_axes).failed == 0


def test_axes_and_what_is_fixed() -> None:
    grid = read_grid(
        ["optimizer.learning_rate=1e-5,3e-5", "seed=range(3)", "data.template=think", "~tracker"]
    )
    assert grid.axes == (
        Axis(key="optimizer.learning_rate", values=("1e-05", "3e-05")),
        Axis(key="seed", values=("0", "1", "2")),
    )
    assert grid.fixed == ("data.template=think", "~tracker")


def test_the_runs_are_the_product_in_order() -> None:
    grid = read_grid(["a=1,2", "b=x,y,z"])
    expected = [{"a": a, "b": b} for a, b in itertools.product(("1", "2"), ("x", "y", "z"))]
    assert grid.points() == expected


def test_zipped_axes_go_together() -> None:
    grid = read_grid(["a=1,2", "c=7,8", "b=x,y"], zipped=[("a", "b")])
    assert grid.points() == [
        {"a": "1", "c": "7", "b": "x"},
        {"a": "1", "c": "8", "b": "x"},
        {"a": "2", "c": "7", "b": "y"},
        {"a": "2", "c": "8", "b": "y"},
    ]


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("k=[1,2],[3]", ("[1,2]", "[3]")),
        ("k={a:1},{a:2}", ("{a:1}", "{a:2}")),
        ("k=choice(x,y)", ("x", "y")),
        ("k=null,5", ("null", "5")),
        ("k=true,false", ("true", "false")),
        ("k='a, b',c", ("'a, b'", "c")),
        ("objective@x=grpo,dr_grpo", ("grpo", "dr_grpo")),
    ],
)
def test_values_are_written_as_they_came(written: str, values: tuple[str, ...]) -> None:
    (axis,) = read_grid([written]).axes
    assert axis.values == values


@pytest.mark.parametrize("written", ["k=[1,2]", "k={a: 1, b: 2}", "k='a, b'", "k=</x>, and"])
def test_what_is_one_value_is_no_axis(written: str) -> None:
    with pytest.raises(ConfigError, match="nothing varies"):
        read_grid([written])


@pytest.mark.parametrize(
    ("overrides", "zipped", "message"),
    [
        (["a=1,1"], [], "1 stands there twice"),
        (["a=1,2", "a=3,4"], [], "a is given two lists"),
        (["a=interval(0,1)"], [], "tries every value"),
        (["a=1,2", "b=1,2,3"], [("a", "b")], "a has 2, b has 3"),
        (["a=1,2"], [("a", "b")], "b does not vary"),
        (["a=1,2", "b=1,2"], [("a", "b"), ("b",)], "b stands there twice"),
    ],
)
def test_what_makes_no_sweep(
    overrides: list[str], zipped: list[tuple[str, ...]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_grid(overrides, zipped=zipped)
    assert "\n" not in caught.value.message


def test_names_are_short_and_tell_runs_apart() -> None:
    points = [{"sft.seed": "1", "grpo.seed": "2", "path": "data/my set.jsonl"}]
    assert run_names(points) == ["sft.seed_1__grpo.seed_2__path_data-my-set.jsonl"]
    # The same after what no file name takes is left out, and too long: numbered.
    assert run_names([{"a": "x y"}, {"a": "x/y"}]) == ["1__a_x-y", "2__a_x-y"]
    (long,) = run_names([{"a": "z" * 200}])
    assert long == f"1__a_{'z' * (LONGEST_NAME - 2)}"
