"""Stopping politely: Ctrl-C and SIGTERM let the step finish and be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody asked the run to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    @property
    def requested(self) -> bool:
        """True from the first signal on."""
        return self.signal_number is not None

    def request(self, signal_number: int = signal.SIGINT) -> None:
        """Ask for a stop after the current step."""
        self.signal_number = signal_number


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """A `StopRequest` that Ctrl-C and SIGTERM set; a second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread no handler can be installed; the request can then only be made by
    calling it.
    """
    stop = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.request(number)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
