"""An engine that samples only once training has begun: what overlap is shown by. No clock decides.

Its process waits for a file that the test writes when an update begins. A loop that waits for the
samples before it trains would wait until `LIMIT_SECONDS` are over, and fail.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.rollout.engine import Engine, Request
from workings.rollout.scripted import ScriptedEngine

LIMIT_SECONDS = 60.0


def note(folder: Path, event: str) -> None:
    """Append to the file of events, in one write, from whichever process."""
    descriptor = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{event}\n".encode())
    os.close(descriptor)


def events(folder: Path) -> list[str]:
    """All events so far, in order."""
    file = folder / "events"
    return file.read_text().splitlines() if file.is_file() else []


def builder(folder: Path) -> Callable[[], Engine]:
    """What `ProcessEngine` builds the engine with."""
    return partial(_build, folder)


def right_or_wrong(request: Request, index: int) -> str:
    """A script that differs within every group."""
    return (r"so \boxed{4}" if index == request.seed % 4 else "no") + "." * (index % 3)


def _build(folder: Path) -> Engine:
    return WaitingEngine(folder)


class WaitingEngine(ScriptedEngine):
    """Its first batch is sampled at once, batch n + 1 when update n has begun."""

    def __init__(self, folder: Path) -> None:
        super().__init__(tiny_tokenizer(), right_or_wrong)
        self._folder = folder
        self._number = 0

    def generate(self, requests, sampling):
        """The scripted samples, once they may be."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self._number and f"training {self._number - 1}" not in events(self._folder):
            if time.monotonic() > deadline:
                raise EngineError(f"no training within {LIMIT_SECONDS:g} s of batch {self._number}")
            time.sleep(0.01)
        samples = super().generate(requests, sampling)
        note(self._folder, f"sampled {self._number}")
        self._number += 1
        return samples
