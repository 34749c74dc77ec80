"""Two processes that form one gloo group and do what a test asks; a hang is a failure with stacks.

`RankPool.run(function, ...)` calls `function(ranks, ...)` on every rank, with a module-level
function, and returns the results in the order of the ranks. The processes are kept from call to
call, since importing torch takes seconds.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60.0
START_SECONDS = 240.0  # importing torch and transformers on a machine that is busy


class RankFailure(AssertionError):
    """What the ranks said, and how each ended: "ok", "error" (it raised), "gone" or "hung"."""

    def __init__(self, text: str, endings: list[str]) -> None:
        super().__init__(text)
        self.endings = endings


class RankPool:
    """`size` rank processes in `folder`, started on first use and again after a failure."""

    def __init__(self, folder: Path, *, size: int = 2) -> None:
        self._folder = folder
        self._size = size
        self._started = 0
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> list[Any]:
        """What `function(ranks, *arguments)` gives on each rank; RankFailure if one has none."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, arguments))
        deadline = time.monotonic() + limit_seconds
        answers = []
        for pipe in self._pipes:
            try:
                arrived = pipe.poll(max(0.0, deadline - time.monotonic()))
                answers.append(pipe.recv() if arrived else ("hung", ""))
            except EOFError:
                answers.append(("gone", ""))
        if all(kind == "ok" for kind, _ in answers):
            return [value for _, value in answers]
        raise RankFailure(self._end(answers), [kind for kind, _ in answers])

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes, self._pipes = [], []

    def _start(self) -> None:
        self._started += 1
        context = multiprocessing.get_context("spawn")
        for rank in range(self._size):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, self._size, str(self._folder), self._started, there),
                daemon=True,
            )
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)
        deadline = time.monotonic() + START_SECONDS
        for pipe in self._pipes:
            if not pipe.poll(max(0.0, deadline - time.monotonic())) or pipe.recv() != "here":
                raise RankFailure(self._end([("hung", "")] * self._size), ["hung"] * self._size)

    def _end(self, answers: list[tuple[str, str]]) -> str:
        """Kill the processes; what each had to say, with the stacks of those that hung."""
        for process, (kind, _) in zip(self._processes, answers, strict=True):
            if kind == "hung" and process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        for process in self._processes:
            process.kill()
        self.close()
        parts = []
        for rank, (kind, text) in enumerate(answers):
            file = _stderr_file(self._folder, self._started, rank)
            parts.append(f"rank {rank}: {kind}\n{text}\n{file.read_text()}")
        return "\n".join(parts)


def _stderr_file(folder: Path, number: int, rank: int) -> Path:
    return folder / f"stderr-{number}-{rank}.txt"


def redirect_stderr(file: Path) -> None:
    """Send this process's standard error to `file`, and its stacks too when it gets SIGUSR1."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def fail_on_one_rank(rank: int, folder: str, busy: str) -> None:
    """Rank 1 raises; rank 0 waits for it in a collective, or is busy with something else."""
    redirect_stderr(Path(folder) / f"stderr-{rank}.txt")
    import torch

    from workings.errors import TrainingError
    from workings.training.join import join_ranks

    store = f"file://{folder}/store"
    with join_ranks(store, rank=rank, size=2, timeout_seconds=100, grace_seconds=2) as ranks:
        ranks.barrier()
        if rank == 1:
            raise TrainingError("row 17 of the second file is broken", hint="mend it")
        if busy == "collective":
            ranks.all_sum(torch.zeros(1))
        elif busy == "elsewhere":
            time.sleep(100)
        elif busy == "also failing":
            time.sleep(1)
            raise ValueError("a consequence")


def _serve(rank: int, size: int, folder: str, number: int, pipe: Connection) -> None:
    redirect_stderr(_stderr_file(Path(folder), number, rank))
    import torch

    import tiny  # noqa: F401  # with all that a test will need
    from workings.training.join import join_ranks

    torch.set_num_threads(1)
    store = f"file://{folder}/store-{number}"
    limits = {"timeout_seconds": START_SECONDS, "grace_seconds": 3.0}
    with join_ranks(store, rank=rank, size=size, **limits) as ranks:
        pipe.send("here")
        while True:
            try:
                function, arguments = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(("ok", function(ranks, *arguments)))
            except Exception:
                pipe.send(("error", traceback.format_exc()))
                raise
