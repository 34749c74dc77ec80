"""Validation errors in the words of a configuration: the path, what came, what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import ValidationError

from workings.config.fields import Setting, describe_type, find_setting
from workings.config.keys import unknown_key, where_listed
from workings.errors import ConfigError


def explain(error: ValidationError, kind: str) -> ConfigError:
    """One ConfigError with a line for every problem, in the order of the models."""
    lines: dict[str, str] = {}
    hints: list[str] = []
    for problem in error.errors(include_url=False):
        path, setting = _place(problem["loc"], kind)
        if problem["type"] == "extra_forbidden":
            hints.append(where_listed(kind))
        lines.setdefault(path, _line(path, setting, problem, kind))
    if len(lines) == 1:
        message = next(iter(lines.values()))
    else:
        message = f"{len(lines)} settings cannot be used:\n  " + "\n  ".join(lines.values())
    return ConfigError(message, hint=hints[0] if hints else None)


def _line(path: str, setting: Setting | None, problem: Any, kind: str) -> str:
    if problem["type"] == "extra_forbidden":
        return unknown_key(path, kind)
    expected = _expected(path, setting) or _plain(problem["msg"])
    if problem["type"] == "missing":
        return f"{path} is not set; expected {expected}"
    return f"{path}={_shown(problem['input'])}; expected {expected}"


def _expected(path: str, setting: Setting | None) -> str:
    if setting is None:
        return ""
    if setting.open and path != setting.path:
        return describe_type(get_args(setting.annotation)[1])
    if setting.is_list and _is_entry(path):
        inner = get_args(setting.annotation)
        return describe_type(inner[0]) if inner else ""
    return setting.expected


def _is_entry(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def _plain(message: str) -> str:
    """pydantic's own words, for a type that has no description of ours."""
    return message[:1].lower() + message[1:]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _place(loc: Sequence[str | int], kind: str) -> tuple[str, Setting | None]:
    """The path of a problem and its setting, without the names of a union's members."""
    path, setting = "", None
    for part in loc:
        longer = f"{path}.{part}" if path else str(part)
        found = find_setting(longer, kind)
        if found is None and isinstance(part, int) and setting is not None and setting.is_list:
            return longer, setting
        if found is None and setting is not None and setting.section is None:
            return path, setting  # below a leaf: the member of a union that did not fit
        path, setting = longer, found
        if found is not None and found.open and longer != found.path:
            return path, found
    return path, setting
