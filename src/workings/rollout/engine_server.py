"""The other end of a `ProcessEngine`: answers its questions, in the engine's own process."""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from workings.errors import WorkingsError, is_out_of_memory
from workings.rollout.engine import Engine

if TYPE_CHECKING:
    import torch

START = 0
"""Number of the question that is never asked: whether the engine could be built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the engine's process says to a question: "next" (tensor, please), "done" or "error"."""

    number: int
    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error that the engine raised in its process; `memory` says that memory ran out there."""

    message: str
    hint: str | None
    trace: str
    memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """Stands before the bytes of a tensor."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


def serve(build: Callable[[], Engine], pipe: Connection) -> None:
    """Answer questions until told to close. Ctrl-C is for the trainer, which then closes this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, inbox), daemon=True).start()
    try:
        engine = build()
        version = engine.weight_version
    except Exception as error:
        pipe.send(Answer(number=START, kind="error", value=_failure(error)))
        return
    pipe.send(Answer(number=START, kind="done", value=version))
    while True:
        number, call, arguments = inbox.get()
        if call == "close":
            engine.close()
            return
        try:
            value = _answer(engine, call, arguments, _tensors(pipe, inbox, number))
        except Exception as error:
            pipe.send(Answer(number=number, kind="error", value=_failure(error)))
        else:
            pipe.send(Answer(number=number, kind="done", value=value))


def _read(pipe: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """Take in whatever comes, so that neither side waits for the other to read."""
    while True:
        try:
            message = pipe.recv()
            if isinstance(message, TensorHeader):
                message = (message, pipe.recv_bytes())
        except (EOFError, OSError):  # the trainer is gone; nobody wants the samples
            os._exit(1)
        inbox.put(message)


def _answer(
    engine: Engine, call: str, arguments: tuple[Any, ...], tensors: Iterator[tuple[str, Any]]
) -> Any:
    if call == "generate":
        return engine.generate(*arguments)
    if call == "weights":
        (version,) = arguments
        engine.load_weights(version, tensors)
        return engine.weight_version
    getattr(engine, call)()  # sleep, wake
    return None


def _tensors(
    pipe: Connection, inbox: queue.SimpleQueue[Any], number: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Ask for one tensor after the other until there is no more."""
    import torch

    while True:
        pipe.send(Answer(number=number, kind="next"))
        message = inbox.get()
        if message is None:
            return
        header, values = message
        flat = torch.frombuffer(bytearray(values), dtype=header.dtype) if values else torch.empty(0)
        yield header.name, flat.to(header.dtype).reshape(header.shape)


def _failure(error: Exception) -> Failure:
    trace = "".join(traceback.format_exception(error))
    message, hint = f"{type(error).__name__}: {error}".removesuffix(": "), None
    if isinstance(error, WorkingsError):
        message, hint = error.message, error.hint
    return Failure(message=message, hint=hint, trace=trace, memory=is_out_of_memory(error))


def send_tensor(pipe: Connection, name: str, tensor: torch.Tensor) -> None:
    """Header and bytes. Shared memory would be faster, but containers often have 64 MB of it."""
    import torch

    values = tensor.detach().cpu().contiguous().reshape(-1)
    pipe.send(TensorHeader(name=name, dtype=tensor.dtype, shape=tuple(tensor.shape)))
    pipe.send_bytes(values.view(torch.uint8).numpy().data)
