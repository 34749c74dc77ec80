"""Nested mappings read and written by dotted path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

Tree = dict[str, Any]
_ABSENT = object()


def look_up(tree: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default`.

    >>> look_up({"a": {"b": 1}}, "a.b"), look_up({"a": None}, "a.b", 0)
    (1, 0)
    """
    value: Any = tree
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def holds(tree: Mapping[str, Any], path: str) -> bool:
    """True where a value, null included, stands at the path."""
    return look_up(tree, path, _ABSENT) is not _ABSENT


def put(tree: MutableMapping[str, Any], path: str, value: Any) -> None:
    """Set the value at a path, in place; what stands in the way and is no mapping is replaced.

    >>> tree = {"model": {"lora": None}}
    >>> put(tree, "model.lora.rank", 8)
    >>> tree
    {'model': {'lora': {'rank': 8}}}
    """
    *above, last = path.split(".")
    for part in above:
        if not isinstance(tree.get(part), MutableMapping):
            tree[part] = {}
        tree = tree[part]
    tree[last] = value


def take(tree: MutableMapping[str, Any], path: str) -> Any:
    """Remove and return the value at a path, in place, and the sections that this leaves empty.

    >>> tree = {"a": {"b": {"c": 1}}, "d": 2}
    >>> take(tree, "a.b.c"), tree
    (1, {'d': 2})
    """
    head, _, rest = path.partition(".")
    if not rest:
        return tree.pop(head)
    value = take(tree[head], rest)
    if not tree[head]:
        del tree[head]
    return value


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything that is not a filled mapping.

    >>> list(leaves({"a": {"b": 1, "c": {}}, "d": [2]}))
    [('a.b', 1), ('a.c', {}), ('d', [2])]
    """
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value
