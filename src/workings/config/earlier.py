"""A YAML file written for an earlier program, rewritten in our terms."""

from __future__ import annotations

from typing import Any

from workings.config.aliases import OLDER
from workings.config.fields import find_setting, settings_of
from workings.config.keys import find_key
from workings.config.trees import Tree, holds, leaves, look_up, put, take
from workings.config.words import show
from workings.errors import ConfigError


def rename(tree: Tree, kind: str, label: str) -> list[str]:
    """Move every value under an earlier name to its place, in place; one line for each.

    A key that nothing is known about stays where it is: validation reports it with the others.
    """
    notes = []
    written: dict[str, str] = {}
    for path, value in _unknown_leaves(tree, kind):
        for place in find_key(path, kind):
            assigned = place.assign(value)
            if holds(tree, path):
                take(tree, path)
            if assigned is None:
                continue
            target, ours = assigned
            if holds(tree, target) and look_up(tree, target) != ours:
                other = f"{written.get(target, target)}={show(look_up(tree, target))}"
                raise ConfigError(
                    f"{label}: {other} and {path}={show(ours)} both set "
                    f"{'one thing' if OLDER in target.split('.') else target}",
                    hint="keep one of them",
                )
            put(tree, target, ours)
            written[target] = path
            if OLDER not in target.split("."):
                notes.append(f"{label}: {path} is read as {target}={show(ours)}")
    return notes


def _unknown_leaves(tree: Tree, kind: str) -> list[tuple[str, Any]]:
    """The values that stand at no path of this kind of run, in the file's order."""
    return [(path, value) for path, value in leaves(tree) if not _is_known(path, kind)]


def _is_known(path: str, kind: str) -> bool:
    """True where the path is a setting, or lies inside an open mapping or a value that is none."""
    if OLDER in path.split(".") or find_setting(path, kind) is not None:
        return True
    parts = path.split(".")
    settings = settings_of(kind)
    for length in range(len(parts) - 1, 0, -1):
        above = settings.get(".".join(parts[:length]))
        if above is not None:
            return above.section is None or above.is_list
    return False
