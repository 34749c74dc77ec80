"""`--some-key value` on the command line of a run is `some_key=value`; there is no other option."""

from __future__ import annotations

from collections.abc import Sequence

from workings.config.keys import find_key, unknown_key, where_listed
from workings.errors import ConfigError

LATEST = "latest"
_TRUTH = ("true", "false")


def overrides_from(arguments: Sequence[str], kind: str) -> list[str]:
    """Every argument as an override: `key=value`, `+key=value` and `~key` stay as they are.

    `--key value` and `--key=value` become `key=value`; a key that is true or false may stand
    alone. Raises ConfigError for an unknown key, or for one without its value.
    """
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
        elif argument.startswith("--"):
            key, equals, value = argument[2:].partition("=")
            overrides.append(f"{key}={value if equals else _take_value(key, rest, kind)}")
        else:
            raise ConfigError(
                f"unknown option {argument!r}", hint="settings are written --key value or key=value"
            )
    return overrides


def _take_value(key: str, rest: list[str], kind: str) -> str:
    """The value of `--key`, taken from the front of `rest`."""
    places = find_key(key, kind)
    if not places and (not rest or rest[0].startswith("--")):
        raise ConfigError(unknown_key(key, kind), hint=where_listed(kind))
    if places and all(place.is_flag for place in places):
        return rest.pop(0) if rest and rest[0].lower() in _TRUTH else "true"
    if not rest or rest[0].startswith("--"):
        setting = places[0].setting
        expected = f"; expected {setting.expected}" if setting is not None else ""
        raise ConfigError(f"--{key} has no value{expected}")
    return rest.pop(0)


def with_resume_value(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--resume` alone spelled out as `--resume latest`."""
    spelled: list[str] = []
    for index, argument in enumerate(arguments):
        spelled.append(argument)
        if argument == "--resume":
            after = arguments[index + 1 : index + 2]
            if not after or after[0].startswith("-") or "=" in after[0]:
                spelled.append(LATEST)
    return spelled
