"""`key=value` as it is written on the command line, in Hydra's grammar, read for a kind of run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workings.config.aliases import OLDER
from workings.config.fields import Setting, settings_of
from workings.config.keys import Destination, resolve_key
from workings.config.sources import BENCHMARKS, check_choice, is_group
from workings.config.words import show
from workings.errors import ConfigError

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=\s]+)(?P<given>=(?P<raw>.*))?", re.DOTALL)
_QUOTED = re.compile(r"""\s*(["']).*\1\s*""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One setting that the command line gives, in our terms.

    Attributes:
        path: full dotted path; inside `__older__` where `config.older` works the value out.
        written: the key as the user wrote it.
        renamed: True where an earlier program's name or value was translated.
    """

    path: str
    value: Any
    written: str
    renamed: bool = False


@dataclass(slots=True, kw_only=True)
class Overrides:
    """Everything that the command line gives, sorted by what it acts on, each in order."""

    choices: dict[str, str | list[str] | None] = field(default_factory=dict)
    assignments: list[Assignment] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)


def read_overrides(texts: Sequence[str], kind: str, folders: Sequence[Path]) -> Overrides:
    """The overrides, sorted. Raises ConfigError for what cannot be read, or says two things.

    The same key written twice: the last one wins, as in a script that appends to its arguments.
    Two different keys for one setting must agree. `choices` holds None for a removed group.
    """
    read = Overrides()
    for text in texts:
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            raise ConfigError(f"{text!r} is not an override", hint="expected key=value")
        sign, key, raw = match["sign"] or "", match["key"], match["raw"]
        if key.partition(".")[0] == "hydra":
            raise ConfigError(f"{key!r}: settings of Hydra itself have no effect here")
        if sign == "~":
            _read_removal(key, raw, kind, folders, read)
        elif raw is None:
            raise ConfigError(
                f"{text!r} is not an override", hint=f"expected {text}=VALUE or --{text} VALUE"
            )
        elif _chooses_group(key, raw, kind, folders):
            _read_choice(key, raw, folders, read)
        else:
            _read_assignments(key, raw, kind, read)
    return read


# ------------------------------------------------------------------------------------- groups


def _chooses_group(key: str, raw: str, kind: str, folders: Sequence[Path]) -> bool:
    group = key.partition("@")[0]
    setting = settings_of(kind).get(key)
    is_field = setting is not None and setting.section is None
    return (
        group != BENCHMARKS
        and not is_field
        and not raw.lstrip().startswith("{")
        and raw.strip() not in ("", "null")
        and is_group(group, folders)
    )


def _read_choice(key: str, raw: str, folders: Sequence[Path], read: Overrides) -> None:
    group = key.partition("@")[0]
    value = parse_value(key, raw)
    names = value if isinstance(value, list) else [value]
    for name in names:
        check_choice(group, str(name), folders)
    read.choices[key] = [str(n) for n in names] if isinstance(value, list) else str(value)


def _read_removal(
    key: str, raw: str | None, kind: str, folders: Sequence[Path], read: Overrides
) -> None:
    if raw is not None:
        raise ConfigError(f"~{key}={raw}: a removal takes no value", hint=f"write ~{key}")
    setting = settings_of(kind).get(key)
    if (setting is None or setting.section is not None) and is_group(
        key.partition("@")[0], folders
    ):
        read.choices[key] = None
        return
    for place in resolve_key(key, kind):
        read.removals.append(f"{place.prefix}{place.path}")


# ------------------------------------------------------------------------------------- values


def _read_assignments(key: str, raw: str, kind: str, read: Overrides) -> None:
    for place in resolve_key(key, kind):
        value = parse_value(key, raw, place)
        assigned = place.assign(value)
        if assigned is None:
            continue
        path, ours = assigned
        new = Assignment(
            path=path,
            value=ours,
            written=key.replace("-", "_"),
            renamed=place.alias is not None,
        )
        _refuse_disagreement(new, read.assignments)
        read.assignments.append(new)


def _refuse_disagreement(new: Assignment, before: Sequence[Assignment]) -> None:
    for old in before:
        if old.path == new.path and old.written != new.written and old.value != new.value:
            raise ConfigError(
                f"{old.written}={show(old.value)} and {new.written}={show(new.value)} both set "
                f"{'one thing' if OLDER in new.path.split('.') else new.path}",
                hint="give one of them",
            )


def parse_value(key: str, raw: str, place: Destination | None = None) -> Any:
    """The value that `raw` stands for, given where it goes.

    Text settings take `raw` as it is (unless quoted), and a list of texts takes one text as a
    list of one; everything else is read in Hydra's grammar.
    """
    setting = place.setting if place is not None else None
    if raw.strip() == "null":
        return None
    if setting is not None and not _QUOTED.fullmatch(raw):
        if setting.is_text and not setting.open:
            return raw
        if _is_list_of_texts(setting) and not raw.lstrip().startswith("["):
            return [raw]
    value = _parse_in_grammar(key, raw)
    if setting is not None and _is_list_of_texts(setting) and isinstance(value, str):
        return [value]
    return value


def _is_list_of_texts(setting: Setting) -> bool:
    return setting.is_list and (
        setting.annotation == tuple[str, ...] or setting.section is not None
    )


def _parse_in_grammar(key: str, raw: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import QuotedString
    from hydra.errors import HydraException

    if not raw:
        return ""
    try:
        override = OverridesParser.create().parse_override(f"value={raw}")
    except HydraException as error:
        raise ConfigError(
            f"{key}={raw}: the value cannot be read: {_first_line(error)}",
            hint=f"quote it: '{key}=\"...\"', with a backslash before quotes inside",
        ) from None
    if override.is_sweep_override():
        raise ConfigError(
            f"{key}={raw}: one run takes one value",
            hint=f"a list is written {key}=[{raw}]",
        )
    value = override.value()
    return value.text if isinstance(value, QuotedString) else value


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].lower()
