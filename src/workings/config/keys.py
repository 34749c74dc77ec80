"""What a key means: a full dotted path, a name of an earlier program, or a field named alone."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import Any

from workings.config.aliases import ALIASES, FOREIGN_SECTIONS, OLDER, REFUSALS, Alias, Refusal
from workings.config.fields import Setting, find_setting, settings_of
from workings.config.words import show, show_quoted
from workings.errors import ConfigError

PHASES = ("sft", "grpo")
_PHASE_SECTIONS = {
    "sft": "sft",
    "sft_training": "sft",
    "grpo": "grpo",
    "grpo_training": "grpo",
}
# What a pipeline sets for both phases when no phase is named.
_SHARED_BY_PHASES = (
    *("model", "engine", "reward", "grader", "tracking", "output_dir", "layout", "seed"),
    *("num_threads", "data.template", "data.system_prompt"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One place that a key sets. `prefix` is "sft." or "grpo." inside a pipeline, else empty."""

    kind: str
    path: str
    prefix: str = ""
    alias: Alias | None = None
    refusal: Refusal | None = None

    @property
    def setting(self) -> Setting | None:
        """The typed setting behind it; None for a value that `config.older` works out."""
        return find_setting(self.path, self.kind)

    @property
    def is_flag(self) -> bool:
        """True where the key alone means true."""
        if self.alias is not None and self.alias.is_flag:
            return True
        return self.setting is not None and self.setting.is_flag

    def assign(self, value: Any) -> tuple[str, Any] | None:
        """(full path, value) to set; None where the value asks for what happens here anyway."""
        if self.refusal is not None:
            if self.refusal.allows(value):
                return None
            raise ConfigError(
                f"{self.refusal.name}={show(value)} has no counterpart", hint=self.refusal.reason
            )
        if self.alias is None:
            return f"{self.prefix}{self.path}", value
        try:
            assigned = self.alias.assign(value)
        except ValueError as error:
            raise ConfigError(f"{self.alias.name}={show_quoted(value)}; {error}") from None
        return None if assigned is None else (f"{self.prefix}{assigned[0]}", assigned[1])


def resolve_key(key: str, kind: str) -> tuple[Destination, ...]:
    """The places that `key` sets in a run of this kind; ConfigError if none, or not clear which.

    A full dotted path means itself, unless that setting has no effect in this kind of run and an
    earlier program used its name (`data.max_response_length`). After that come the names of
    earlier programs, and the end of a dotted path where only one setting ends so. Dashes are
    underscores.
    """
    found = find_key(key, kind)
    if not found:
        raise ConfigError(unknown_key(key, kind), hint=where_listed(kind))
    return found


def find_key(key: str, kind: str) -> tuple[Destination, ...]:
    """As `resolve_key`, but empty for an unknown key."""
    for spelled in dict.fromkeys((key, key.replace("-", "_"))):
        if kind == "pipeline":
            found = _find_in_pipeline(spelled)
        else:
            found = _find(spelled, kind)
        if found:
            return found
    return ()


def _find(key: str, kind: str) -> tuple[Destination, ...]:
    if find_setting(key, kind) is not None and ("." not in key or key not in ALIASES[kind]):
        return (Destination(kind=kind, path=key),)
    if key in ALIASES[kind]:
        alias = ALIASES[kind][key]
        return (Destination(kind=kind, path=alias.target, alias=alias),)
    if key in REFUSALS:
        return (Destination(kind=kind, path=key, refusal=REFUSALS[key]),)
    section, _, rest = key.partition(".")
    if rest and section in FOREIGN_SECTIONS[kind]:
        return _find(rest, kind)
    if rest and section in settings_of(kind):
        return _find_in_own_section(section, rest, kind)
    ends = _paths_ending_in(key, kind)
    if len(ends) > 1:
        raise ConfigError(
            f"{key!r} could be any of {', '.join(ends)}", hint="write the one you mean in full"
        )
    return tuple(Destination(kind=kind, path=path) for path in ends)


def _find_in_own_section(section: str, rest: str, kind: str) -> tuple[Destination, ...]:
    """An earlier name inside one of our sections (`model.lora_r`), if it belongs there."""
    if rest in REFUSALS:
        return (Destination(kind=kind, path=rest, refusal=REFUSALS[rest]),)
    alias = ALIASES[kind].get(rest)
    if alias is not None and alias.target.startswith((f"{section}.", f"{OLDER}.")):
        return (Destination(kind=kind, path=alias.target, alias=alias),)
    ends = [path for path in _paths_ending_in(rest, kind) if path.startswith(f"{section}.")]
    return tuple(Destination(kind=kind, path=path) for path in ends) if len(ends) == 1 else ()


def _find_in_pipeline(key: str) -> tuple[Destination, ...]:
    if find_setting(key, "pipeline") is not None:
        return (Destination(kind="pipeline", path=key),)
    section, _, rest = key.partition(".")
    if rest and section in _PHASE_SECTIONS:
        phase = _PHASE_SECTIONS[section]
        return tuple(_within(phase, found) for found in _find(rest, phase))
    if key == "max_steps":  # the one step count of the earlier pipeline; its SFT counted epochs
        alias = Alias(name=key, target=key)
        return (Destination(kind="grpo", path=key, prefix="grpo.", alias=alias),)
    both = {phase: _find(key, phase) for phase in PHASES}
    places = [_within(phase, found) for phase in PHASES for found in both[phase]]
    if all(both.values()) and not all(_is_shared(place) for place in places):
        raise ConfigError(
            f"{key!r} could be any of {', '.join(_full_name(place, key) for place in places)}",
            hint="write the one you mean in full",
        )
    return tuple(places)


def _full_name(place: Destination, key: str) -> str:
    return f"{place.prefix}{key if place.path.startswith(OLDER) else place.path}"


def _within(phase: str, found: Destination) -> Destination:
    return Destination(
        kind=phase,
        path=found.path,
        prefix=f"{phase}.",
        alias=found.alias,
        refusal=found.refusal,
    )


def _is_shared(place: Destination) -> bool:
    return place.refusal is not None or any(
        place.path == shared or place.path.startswith(f"{shared}.") for shared in _SHARED_BY_PHASES
    )


@cache
def _named_settings(kind: str) -> tuple[str, ...]:
    return tuple(path for path in settings_of(kind) if "*" not in path)


def _paths_ending_in(key: str, kind: str) -> list[str]:
    return [path for path in _named_settings(kind) if path.endswith(f".{key}")]


# ----------------------------------------------------------------------------------- messages


def unknown_key(key: str, kind: str) -> str:
    """One sentence for an unknown key, with the nearest valid dotted name.

    >>> unknown_key("optimizer.learning_rat", "grpo")
    "unknown key 'optimizer.learning_rat'; did you mean 'optimizer.learning_rate'?"
    """
    near = _nearest(key, kind)
    return f"unknown key {key!r}" + (f"; did you mean {near!r}?" if near else "")


def where_listed(kind: str) -> str:
    """Where a user finds the names."""
    return f"`workings {kind} --help` lists every setting"


def _nearest(key: str, kind: str) -> str | None:
    """The setting whose whole path, or whose last part, resembles the key most."""
    last = key.rpartition(".")[2]

    def likeness(path: str) -> float:
        whole = difflib.SequenceMatcher(None, key, path).ratio()
        end = difflib.SequenceMatcher(None, last, path.rpartition(".")[2]).ratio()
        return max(whole, end - 0.01) + 0.001 * whole

    settings = settings_of(kind)
    leaves = [path for path in _named_settings(kind) if settings[path].section is None]
    best = max(leaves, key=likeness)
    return best if likeness(best) >= 0.7 else None
