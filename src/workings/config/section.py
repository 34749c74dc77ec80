"""The base of every configuration section: frozen, and closed to unknown keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A typed group of settings. Unknown keys are errors; values are validated, defaults too."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, protected_namespaces=()
    )


class RunSection(Section):
    """The settings of a whole run, which a YAML file holds."""

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Sequence[str] = ()) -> Self:
        """The run that a YAML file, a shipped name or an earlier run's folder describes.

        `overrides` are `key=value`, as on the command line; every mistake is a ConfigError.
        """
        from workings.config.compose import compose

        run: Any = compose([str(path)], overrides, kind=cls.model_fields["kind"].default)
        assert isinstance(run, cls)
        return run

    def to_yaml(self, path: str | Path) -> Path:
        """Write every setting to `path`, which `from_yaml` reads back to the same run."""
        from workings.config.dump import dump_yaml

        run: Any = self
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dump_yaml(run), encoding="utf-8")
        return file
