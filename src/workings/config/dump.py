"""A run's resolved configuration as YAML, which `-c` reads back to the same run."""

from __future__ import annotations

import re
from typing import Any

from workings.config.kinds import AnyRun
from workings.config.yaml_text import yaml_text

_INTERPOLATION = re.compile(r"(\\*)\$\{")


def resolved(run: AnyRun) -> dict[str, Any]:
    """Every setting of a run with its value, the kind first, in plain lists and mappings."""
    values = run.model_dump(mode="json")
    return {"kind": values.pop("kind"), **values}


def dump_yaml(run: AnyRun) -> str:
    """The text of `config.yaml`: every setting, in the order of the models.

    Text that would be read back as an interpolation (`${...}`) is escaped.
    """
    escaped: dict[str, Any] = _escaped(resolved(run))
    return yaml_text(escaped)


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_escaped(entry) for entry in value]
    if isinstance(value, str):
        return _INTERPOLATION.sub(lambda m: m[1] * 2 + "\\${", value)
    return value
