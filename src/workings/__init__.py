"""Workings: post-training for mathematical reasoning.

The public names are listed in `__all__` and loaded on first use, so that `import workings` takes
no time and the parts without torch stay without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that it is defined in. `TYPE_CHECKING` below says the same to a type
# checker; a test compares the two, and `__all__`, and looks for every docstring.
_PUBLIC: dict[str, str] = {
    # records
    "Demonstration": "workings.types",
    "Grade": "workings.types",
    "Message": "workings.types",
    "PreferencePair": "workings.types",
    "Problem": "workings.types",
    "Prompt": "workings.types",
    "Rollout": "workings.types",
    "RolloutGroup": "workings.types",
    "Sample": "workings.types",
    "Verdict": "workings.types",
    # errors
    "CheckpointError": "workings.errors",
    "ConfigError": "workings.errors",
    "DataError": "workings.errors",
    "EngineError": "workings.errors",
    "GradingError": "workings.errors",
    "ModelError": "workings.errors",
    "StoppedBySignal": "workings.errors",
    "TemplateError": "workings.errors",
    "TrainingError": "workings.errors",
    "WorkingsError": "workings.errors",
    # configuration
    "compose": "workings.config.compose",
    "dump_yaml": "workings.config.dump",
    # sampling
    "Engine": "workings.rollout.engine",
    "Request": "workings.rollout.engine",
    "SamplingParams": "workings.rollout.engine",
}

__all__ = [  # noqa: RUF022 - the order of the table above
    "Demonstration",
    "Grade",
    "Message",
    "PreferencePair",
    "Problem",
    "Prompt",
    "Rollout",
    "RolloutGroup",
    "Sample",
    "Verdict",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "EngineError",
    "GradingError",
    "ModelError",
    "StoppedBySignal",
    "TemplateError",
    "TrainingError",
    "WorkingsError",
    "compose",
    "dump_yaml",
    "Engine",
    "Request",
    "SamplingParams",
]

if TYPE_CHECKING:
    from workings.config.compose import compose
    from workings.config.dump import dump_yaml
    from workings.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        EngineError,
        GradingError,
        ModelError,
        StoppedBySignal,
        TemplateError,
        TrainingError,
        WorkingsError,
    )
    from workings.rollout.engine import Engine, Request, SamplingParams
    from workings.types import (
        Demonstration,
        Grade,
        Message,
        PreferencePair,
        Problem,
        Prompt,
        Rollout,
        RolloutGroup,
        Sample,
        Verdict,
    )


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'workings' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
