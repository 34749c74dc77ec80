"""A worker process: takes one task after another from its channel, answers, ends with its parent.

All messages are JSON objects. A worker says `{"pid"}` when it is ready (or `{"fault"}`, where it
could not be made), then takes tasks and answers each with what its handler returns and the seconds
that this took. More tasks may be sent while one is worked on; they are taken in order.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Protocol, cast

from workings.grading.workers.channel import Channel
from workings.grading.workers.isolation import (
    forbid_sockets_and_programs,
    limit_cpu,
    limit_memory,
)


class Handler(Protocol):
    """The module that a worker imports and asks."""

    def warm_up(self) -> None:
        """Load what the first task would load."""
        ...

    def answer(self, task: Mapping[str, object]) -> Mapping[str, object]:
        """The reply to one task; an exception ends the worker."""
        ...


def load_handler(name: str) -> Handler:
    """The module of that name, warmed up, in a process that has given up what it does not need."""
    handler = cast(Handler, importlib.import_module(name))
    handler.warm_up()
    gc.collect()
    gc.freeze()  # what is loaded now is shared by all workers and never collected
    forbid_sockets_and_programs()
    return handler


def serve(channel: Channel, handler: Handler, memory_bytes: int) -> None:
    """Answer tasks until the other end of `channel` is closed."""
    limit_memory(memory_bytes)
    try:
        channel.send(json.dumps({"pid": os.getpid()}).encode())
        while True:
            for message in channel.receive():
                channel.send(_reply(handler, json.loads(message)))
    except (EOFError, OSError):
        return


def main(handle: int, handler_name: str, memory_bytes: int) -> None:
    """Entry point of a worker that was not forked; `handle` is its end of the channel."""
    channel = open_channel(handle)
    try:
        handler = load_handler(handler_name)
    except Exception as error:
        channel.send(json.dumps({"fault": describe(error)}).encode())
        return
    serve(channel, handler, memory_bytes)


def open_channel(handle: int) -> Channel:
    """The channel behind an inherited descriptor (on Windows: socket handle)."""
    family = socket.AF_INET if sys.platform == "win32" else socket.AF_UNIX
    return Channel(socket.socket(family, socket.SOCK_STREAM, fileno=handle))


def describe(error: BaseException) -> str:
    """The error in a line or two, short enough for a message."""
    return f"{type(error).__name__}: {error}"[:2000]


def _reply(handler: Handler, task: dict[str, object]) -> bytes:
    seconds = task["seconds"]
    assert isinstance(seconds, float)
    limit_cpu(seconds)
    start = time.perf_counter()
    reply = handler.answer(task)
    return json.dumps({**reply, "seconds": time.perf_counter() - start}).encode()
