"""Values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """The value with null for each number that is not finite, which JSON lacks, at any depth.

    >>> json_value({"value": float("nan"), "steps": (1, float("inf"), 2.5)})
    {'value': None, 'steps': [1, None, 2.5]}
    """
    if isinstance(value, Mapping):
        return {key: json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
