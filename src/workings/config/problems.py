"""Validation errors in the words of a configuration: the path, what came, what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import ValidationError

from workings.config.fields import Setting, describe_type, find_setting
from workings.config.keys import unknown_key, where_listed
from workings.config.words import show_quoted
from workings.errors import ConfigError

Loc = tuple[int | str, ...]


def explain(error: ValidationError, kind: str) -> ConfigError:
    """One ConfigError with a line for every problem, in the order of the models."""
    lines: dict[str, str] = {}
    hints: list[str] = []
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] == "too_short" and _lies_around_another(problem["loc"], problems):
            continue
        path, setting = _place(_without_missing_entry(problem), kind)
        if problem["type"] == "extra_forbidden":
            hints.append(where_listed(kind))
        lines.setdefault(path, _line(path, setting, problem, kind))
    if len(lines) == 1:
        message = next(iter(lines.values()))
    else:
        message = f"{len(lines)} settings cannot be used:\n  " + "\n  ".join(lines.values())
    return ConfigError(message, hint=hints[0] if hints else None)


def _lies_around_another(loc: Loc, problems: Sequence[Any]) -> bool:
    return any(len(p["loc"]) > len(loc) and p["loc"][: len(loc)] == loc for p in problems)


def _without_missing_entry(problem: Any) -> Loc:
    """The place of a problem; of a list that is too short, the list."""
    loc: Loc = problem["loc"]
    return loc[:-1] if problem["type"] == "missing" and isinstance(loc[-1], int) else loc


def _line(path: str, setting: Setting | None, problem: Any, kind: str) -> str:
    if problem["type"] == "extra_forbidden":
        return unknown_key(path, kind)
    expected = _expected(path, setting) or _plain(problem["msg"])
    if problem["type"] == "missing" and not isinstance(problem["loc"][-1], int):
        return f"{path} is not set; expected {expected}"
    return f"{path}={show_quoted(problem['input'])}; expected {expected}"


def _expected(path: str, setting: Setting | None) -> str:
    if setting is None:
        return ""
    if setting.open and path != setting.path:
        return describe_type(get_args(setting.annotation)[1])
    if setting.is_list and path.rpartition(".")[2].isdigit():
        return describe_type(get_args(setting.annotation)[0])
    return setting.expected


def _plain(message: str) -> str:
    """pydantic's own words, for a type that has no description of ours."""
    return message[:1].lower() + message[1:]


def _place(loc: Loc, kind: str) -> tuple[str, Setting | None]:
    """The path of a problem and its setting, without the names of a union's members."""
    shown: list[str] = []
    looked_up: list[str] = []
    setting: Setting | None = None
    for part in loc:
        inside_list = setting is not None and setting.is_list and isinstance(part, int)
        step = "*" if inside_list and setting is not None and setting.section else str(part)
        found = find_setting(".".join([*looked_up, step]), kind)
        if found is None and setting is not None and not inside_list and setting.section is None:
            break  # below a leaf: the member of a union that did not fit
        shown.append(str(part))
        looked_up.append(step)
        if not inside_list:
            setting = found
        if setting is not None and setting.open and len(looked_up) > setting.path.count(".") + 1:
            break
    return ".".join(shown), setting
