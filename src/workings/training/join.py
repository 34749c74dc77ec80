"""Several processes as one run: they start together, and when one fails all of them end.

Without this a rank that raises leaves the others waiting in a collective, until a time-out of
minutes ends them with a message about sockets. Here the first error of any rank is written to the
store through which the processes met; every rank watches for it, and ends with that message.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from workings.errors import AlreadyFinished, StoppedBySignal, TrainingError, said
from workings.training.distributed import Ranks

FIRST_ERROR = "first_error"
POLL_SECONDS = 0.2


@contextmanager
def join_ranks(
    init_method: str = "env://",
    *,
    rank: int = -1,
    size: int = -1,
    timeout_seconds: float = 600.0,
    grace_seconds: float = 10.0,
) -> Iterator[Ranks]:
    """The ranks of a new default process group, gone again when the block ends on all of them.

    With "env://" rank and size are those that torchrun sets; a process that it did not start is
    alone, and no group is made. "file:///a/new/file" and "tcp://host:port" need `rank` and `size`.

    Args:
        timeout_seconds: longest wait in one collective, and for the other ranks to come.
        grace_seconds: how long a rank may go on once another has failed. A process that is still in
            the block by then (in a collective of NCCL, say) writes the message to standard error
            and exits with 1.

    Raises:
        TrainingError: another rank failed first; the message is "rank N failed: " and what it said.
    """
    if init_method == "env://" and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    timeout = timedelta(seconds=timeout_seconds)
    store, rank, size = next(rendezvous(init_method, rank, size, timeout=timeout))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore("group", store),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    relay = _ErrorRelay(
        PrefixStore("errors", store), rank=rank, size=size, grace_seconds=grace_seconds
    )
    try:
        yield Ranks(rank=rank, size=size)
        dist.barrier()  # a rank that is done waits here for the others, or learns that one failed
    except BaseException as error:
        first, text = relay.first_error(error)
        orderly = isinstance(error, AlreadyFinished | StoppedBySignal) or not isinstance(
            error, Exception
        )
        if first == rank or orderly:
            raise
        raise TrainingError(f"rank {first} failed: {text}") from error
    finally:
        with contextlib.suppress(RuntimeError):  # of a group that is broken already
            dist.destroy_process_group()
        relay.stop()


class _ErrorRelay:
    """The first error of any rank, kept in a store, and a thread that watches for it."""

    def __init__(self, store: Store, *, rank: int, size: int, grace_seconds: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._grace_seconds = grace_seconds
        self._seen: tuple[int, str] | None = None
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rank-errors", daemon=True)
        self._thread.start()

    def first_error(self, error: BaseException) -> tuple[int, str]:
        """Rank and text of the first error of all, `error` being this rank's.

        The rank whose error is the first stays until the others have read it: they may read it
        from a store that ends with this process.
        """
        own = (self._rank, said(error))
        try:
            stored = self._store.compare_set(FIRST_ERROR, "", json.dumps(own))
            first, text = json.loads(stored)
            self._store.set(f"seen/{self._rank}", "1")
            if first == self._rank:
                self._wait_for_the_others()
        except RuntimeError:  # the store has gone with the process that held it
            return self._seen or own
        return first, text

    def stop(self) -> None:
        """The block is over; the thread ends."""
        self._left.set()
        self._thread.join()

    def _wait_for_the_others(self) -> None:
        names = [f"seen/{other}" for other in range(self._size)]
        deadline = time.monotonic() + self._grace_seconds / 2
        while time.monotonic() < deadline and not self._store.check(names):
            time.sleep(POLL_SECONDS / 4)

    def _watch(self) -> None:
        while not self._left.wait(POLL_SECONDS):
            try:
                if not self._store.check([FIRST_ERROR]):
                    continue
                first, text = json.loads(self._store.get(FIRST_ERROR))
                self._seen = (first, text)
                self._store.set(f"seen/{self._rank}", "1")
            except RuntimeError:  # the store has gone with the process that held it
                return
            if not self._left.wait(self._grace_seconds):
                sys.stderr.write(f"error: rank {first} failed: {text}\n")
                sys.stderr.flush()
                os._exit(1)
            return
