"""Nested mappings by dotted path."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workings.config.trees import Tree, holds, leaves, look_up, put, take

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.integers() | st.none()
TREES = st.recursive(
    st.dictionaries(KEYS, VALUES, min_size=1, max_size=3),
    lambda inner: st.dictionaries(KEYS, VALUES | inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_leaves_rebuild_the_tree(tree: Tree) -> None:
    rebuilt: Tree = {}
    for path, value in leaves(tree):
        put(rebuilt, path, value)
    assert rebuilt == tree


@given(TREES)
def test_every_leaf_is_found_and_taken(tree: Tree) -> None:
    for path, value in list(leaves(tree)):
        assert holds(tree, path)
        assert look_up(tree, path) == value
        assert take(tree, path) == value
        assert not holds(tree, path)
    assert tree == {}


def test_put_replaces_what_stands_in_the_way() -> None:
    tree: Tree = {"model": {"lora": None}, "x": 1}
    put(tree, "model.lora.rank", 8)
    put(tree, "x.y", 2)
    assert tree == {"model": {"lora": {"rank": 8}}, "x": {"y": 2}}


def test_null_is_a_value() -> None:
    assert holds({"a": None}, "a")
    assert not holds({"a": None}, "a.b")
    assert look_up({"a": None}, "a", 3) is None
    assert look_up({}, "a", 3) == 3
