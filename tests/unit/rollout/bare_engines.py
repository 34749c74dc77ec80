"""Engines without a model, for a process of their own. No torch here, so that it starts fast.

Each function builds one, as `ProcessEngine` wants it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from workings.errors import EngineError, ModelError
from workings.rollout.engine import Engine


class BareEngine:
    """Answers with numbers; does what `trouble` says in the call of that name."""

    weight_version = 0

    def __init__(self, **trouble: str) -> None:
        self._trouble = trouble

    def generate(self, requests: Any, sampling: Any) -> Any:
        self._perhaps("generate")
        return [[place] * request.num_samples for place, request in enumerate(requests)]

    def load_weights(self, version: int, tensors: Iterable[Any]) -> None:
        for _ in tensors:
            self._perhaps("load_weights")
        self.weight_version = version

    def close(self) -> None:
        pass

    def _perhaps(self, where: str) -> None:
        match self._trouble.get(where):
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(60)
            case "wait":
                time.sleep(1)
            case "allocate":
                bytearray(1 << 62)
            case "raise":
                raise EngineError("no such token", hint="take another")


def die_generating() -> Engine:
    return BareEngine(generate="die")  # type: ignore[return-value]


def hang_syncing() -> Engine:
    return BareEngine(load_weights="hang")  # type: ignore[return-value]


def raise_syncing() -> Engine:
    return BareEngine(load_weights="raise")  # type: ignore[return-value]


def allocate_generating() -> Engine:
    return BareEngine(generate="allocate")  # type: ignore[return-value]


def allocate_at_start() -> NoReturn:
    try:
        bytearray(1 << 62)
    except MemoryError as error:
        raise ModelError("the model cannot be loaded", hint="take a smaller one") from error
    raise AssertionError("there was so much memory")


def slow_engine() -> Engine:
    return BareEngine(generate="wait")  # type: ignore[return-value]


def broken_build() -> NoReturn:
    raise ValueError("no such model")


def die_at_start() -> NoReturn:
    os._exit(7)
