"""What the rules for earlier values read and give: the records that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workings.config.fields import settings_of
from workings.config.objective import CONSTANTS, PRESETS
from workings.config.trees import look_up
from workings.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One setting worked out: `source` says from which numbers, `names` from which older values.

    `scales` is True where the earlier name multiplies the setting instead of giving it.
    """

    path: str
    value: Any
    source: str
    scales: bool = False
    names: tuple[str, ...] = ()


class Given:
    """The earlier values of one run, and the settings around them, defaults filled in."""

    def __init__(self, older: Mapping[str, Any], values: Mapping[str, Any], kind: str) -> None:
        self._older = older
        self._values = values
        self._kind = kind
        self.used: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._older

    def raw(self, name: str) -> Any:
        """An earlier value as it came."""
        self.used.append(name)
        return self._older[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The same; `default` where it was not given, or given as null."""
        value = self.raw(name) if name in self._older else None
        return default if value is None else value

    def whole(self, name: str, written: str) -> int:
        """An earlier value that has to be a whole number of at least 1."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{written}={value!r}; expected a whole number, at least 1")
        return value

    def number(self, name: str, written: str) -> float:
        """An earlier value that has to be a number."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{written}={value!r}; expected a number")
        return value

    def flag(self, name: str, written: str) -> bool:
        """An earlier value that has to be true or false; False where it was not given."""
        value = self.get(name, False)
        if not isinstance(value, bool):
            raise ConfigError(f"{written}={value!r}; expected true or false")
        return value

    def one_of(self, name: str, written: str, values: Mapping[str, Any]) -> Any:
        """What an earlier value stands for, by its spelling in lower case."""
        value = str(self.raw(name)).lower()
        if value not in values:
            raise ConfigError(f"{written}={value!r}; expected one of {', '.join(values)}")
        return values[value]

    def setting(self, path: str) -> Any:
        """A setting of ours as the files and the command line leave it, or its default."""
        return look_up(self._values, path, settings_of(self._kind)[path].default)

    def objective(self, name: str) -> Any:
        """A setting of the objective as it stands: set, of the preset, or its default."""
        value = self.setting(f"objective.{name}")
        if value is not None:
            return value
        preset = PRESETS.get(str(self.setting("objective.preset")))
        if preset is not None and name in preset.values:
            return preset.values[name]
        return CONSTANTS[name].default if name in CONSTANTS else None
