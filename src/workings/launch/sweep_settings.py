"""What a run of a sweep was made with, against what the sweep gives it now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workings.config.dump import dump_yaml, resolved
from workings.config.kinds import AnyRun
from workings.config.sources import RESOLVED_NAME
from workings.config.trees import leaves
from workings.errors import ConfigError, DataError
from workings.tracking.json_values import json_value

PHASES = ("sft", "grpo")
"""Of a pipeline: its sections, and the folders of their runs."""
_FILLED_IN = "grpo.model."
"""What a pipeline replaces when it begins its second phase: the model that the first one saved."""
_SHOWN = 5
_ABSENT = object()


def settings_of(run: AnyRun) -> dict[str, Any]:
    """{dotted path: value} of every setting of a run."""
    return _leaves(resolved(run))


def refuse_other_settings(folder: Path, run: AnyRun, *, stored: Mapping[str, Any]) -> None:
    """ConfigError where the run in `folder` was made with other settings than `run`; it names them.

    `stored` are those that the sweep wrote down, empty where it did not. The files that a run
    itself, or a pipeline's phases, wrote count as well, since a run can be resumed by hand.
    """
    changed = _changes(stored, settings_of(run)) if stored else {}
    settings = _read(dump_yaml(run))
    if (folder / RESOLVED_NAME).is_file():
        changed |= _changes(_file(folder / RESOLVED_NAME), settings)
    for phase in PHASES:
        file = folder / phase / RESOLVED_NAME
        if file.is_file():
            start = f"{phase}."
            before = {start + path: value for path, value in _file(file).items()}
            now = {path: value for path, value in settings.items() if path.startswith(start)}
            found = _changes(before, now)
            changed |= {
                path: pair for path, pair in found.items() if not path.startswith(_FILLED_IN)
            }
    if changed:
        raise ConfigError(
            f"{folder} was run with other settings; now: {_listed(changed)}",
            hint="give this sweep another name, or move that folder away; with the settings from "
            "before the same command goes on",
        )


# -------------------------------------------------------------------------------------- parts


def _file(path: Path) -> dict[str, Any]:
    try:
        return _read(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read: {error}", hint="move the folder of that run away"
        ) from error


def _read(text: str) -> dict[str, Any]:
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    if not isinstance(tree, dict):
        raise ValueError("it holds no settings")
    return _leaves(tree)


def _leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {path: json_value(value) for path, value in leaves(tree)}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    pairs = {key: (before.get(key, _ABSENT), now.get(key, _ABSENT)) for key in {**now, **before}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """The first changed settings as they are now and were before, and how many more there are."""
    texts = [f"{key}: {_text(now)} (was {_text(before)})" for key, (before, now) in changed.items()]
    more = [f"{len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return ", ".join([*texts[:_SHOWN], *more])


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "not there"
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
