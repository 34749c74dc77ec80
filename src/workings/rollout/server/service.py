"""An inference server's state: who uses it, what is to be done, and what was done.

    HTTP threads                                    main thread (`serve_jobs`)
    claim, submit, collect, ... ── jobs (FIFO) ──>  the engine, one job at a time

The engine is used by the main thread alone. One trainer has the server at a time; who has not been
heard for `lease_seconds` loses it, and with it everything that it had asked for.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workings.errors import EngineError, EngineMemoryError, WorkingsError, is_out_of_memory
from workings.rollout.engine import Engine, Request, SamplingParams
from workings.rollout.server.sync import WeightSync
from workings.rollout.server.weight_group import backend_for, open_store

log = logging.getLogger(__name__)
PROTOCOL = 1
MAX_UNCOLLECTED = 16
POLL_SECONDS = 0.2
LoadAdapter = Callable[[int, Iterable[tuple[str, torch.Tensor]]], None]


class Refused(EngineError):
    """A request that the server answers with an HTTP status of its own."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a server is: shown by /health and compared with the trainer's.

    Attributes:
        engine: name of the engine.
        model, tokenizer: fingerprints.
        where: `weight_group.whereabouts` of the engine.
        weights_dtype: what weights are sent as.
        takes: "full" weights or an "adapter".
        version: of the package.
    """

    engine: str
    model: str
    tokenizer: str
    where: Mapping[str, Any]
    weights_dtype: str
    takes: str
    version: str


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The end of a job: samples, a version or an error. `done` is set once it is there."""

    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: WorkingsError | None = None

    def result(self) -> Any:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.value


def _named(error: Exception) -> EngineError:
    """The error of a library below the engine, as the trainer hears of it."""
    message = f"the engine failed: {type(error).__name__}: {error}".removesuffix(": ")
    if is_out_of_memory(error):
        return EngineMemoryError(
            message,
            hint="start `workings serve` with a smaller engine.gpu_memory_utilization or "
            "engine.max_batch_size; its own output has the traceback",
        )
    return EngineError(message, hint="the server's own output has the traceback")


class Session:
    """A trainer that has the server."""

    def __init__(self, client: str, store: Any, port: int, backend: str, now: float) -> None:
        self.id = secrets.token_hex(16)
        self.client = client
        self.store, self.store_port, self.backend = store, port, backend
        self.last_heard = now
        self.outcomes: dict[int, Outcome] = {}
        self.sync: WeightSync | None = None
        self.group: Any = None
        self.num_groups = 0
        self.ended = False

    def drop_group(self) -> None:
        """End the channel for weights, and whatever is under way in it."""
        group, self.group = self.group, None
        if group is not None:
            group.abort()


class Service:
    """Everything behind the server's HTTP paths.

    Args:
        engine: any engine; only `serve_jobs` calls it.
        identity: what it is.
        host: the address served on, where the store for weights listens too.
        lease_seconds: silence after which a trainer has lost the server.
        sync_seconds: longest wait for the next part of a set of weights.
        load_adapter: takes an adapter, for an engine that applies it itself.
        clock: seconds, by which silence is measured.
    """

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        *,
        host: str,
        lease_seconds: float = 30.0,
        sync_seconds: float = 120.0,
        load_adapter: LoadAdapter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.sync_seconds = sync_seconds
        self._engine = engine
        self._host = host
        self._lease_seconds = lease_seconds
        self._load_adapter = load_adapter
        self._clock = clock
        self._jobs: queue.SimpleQueue[tuple[Session, Outcome, Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._busy = ""
        self._stopping = False

    # ------------------------------------------------------------------ main thread

    def serve_jobs(self) -> None:
        """Do jobs until `stop`; an error of one job is its answer, and the next one follows."""
        while not self._stopping:
            try:
                session, outcome, work = self._jobs.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._expire()
                continue
            if session.ended:
                continue
            try:
                outcome.value = work()
            except WorkingsError as error:
                outcome.error = error
            except Exception as error:  # of a library below: the trainer has to hear of it
                log.exception("the engine failed")
                outcome.error = _named(error)
            finally:
                if outcome.error is None and outcome.value is None:  # interrupted
                    outcome.error = EngineError("the server was stopped")
                outcome.done.set()

    def stop(self) -> None:
        """End `serve_jobs` after the job at hand, and every wait of a trainer."""
        self._stopping = True
        with self._lock:
            self._end_session()

    # ------------------------------------------------------------------ HTTP threads

    def health(self) -> dict[str, Any]:
        """What the server is and does."""
        with self._lock:
            session = self._session
            return {
                "protocol": PROTOCOL,
                "engine": self.identity.engine,
                "model": self.identity.model,
                "tokenizer": self.identity.tokenizer,
                "device": self.identity.where["device"],
                "takes": self.identity.takes,
                "version": self.identity.version,
                "weight_version": self._engine.weight_version,
                "client": None if session is None else session.client,
                "busy": self._busy,
            }

    def claim(self, asked: Mapping[str, Any], *, address: str) -> dict[str, Any]:
        """Give the server to a trainer that means the same model; 409 while another has it."""
        self._expire()
        mine = self.identity
        for what, theirs, ours in (
            ("speaks protocol", asked["protocol"], PROTOCOL),
            ("trains a model with fingerprint", asked["model"], mine.model),
            ("has a tokenizer with fingerprint", asked["tokenizer"], mine.tokenizer),
            ("sends weights of kind", asked["sends"], mine.takes),
        ):
            if theirs != ours:
                raise Refused(
                    412,
                    f"the trainer {what} {theirs}; the server expects {ours}",
                    hint="start `workings serve` with the model, tokenizer and engine settings of "
                    "the training run",
                )
        with self._lock:
            if self._session is not None:
                silent = self._clock() - self._session.last_heard
                raise Refused(
                    409,
                    f"the server is in use by {self._session.client}, heard of {silent:.0f} s ago",
                    hint=f"one trainer at a time; it is free {self._lease_seconds:g} s after that "
                    "one is gone",
                )
            backend, reason = backend_for(asked["where"], dict(mine.where))
            store, port = open_store(self._host)
            self._session = Session(str(asked["client"]), store, port, backend, self._clock())
            return {
                "session": self._session.id,
                "store_port": port,
                "backend": backend,
                "reason": reason,
                "weights_dtype": mine.weights_dtype,
                "weight_version": self._engine.weight_version,
                "engine": mine.engine,
                "address": address,
                "lease_seconds": self._lease_seconds,
            }

    def release(self, session: Session) -> None:
        """The trainer is done."""
        with self._lock:
            if self._session is session:
                self._end_session()

    def session(self, session_id: str) -> Session:
        """The trainer of that id, heard of now; 410 where it does not have the server any more."""
        with self._lock:
            session = self._session
            if session is None or not secrets.compare_digest(session.id, session_id):
                raise Refused(
                    410,
                    "the server does not know this trainer (it was restarted, or did not hear from "
                    "it for too long)",
                    hint="load weights again: the engine then connects anew",
                )
            session.last_heard = self._clock()
            return session

    def submit(
        self, session: Session, number: int, requests: Sequence[Request], sampling: SamplingParams
    ) -> None:
        """Queue a batch; its outcome is a list of samples per request."""
        self._queue(session, number, "sampling", lambda: self._engine.generate(requests, sampling))

    def call(self, session: Session, number: int, name: str) -> None:
        """Queue `sleep` or `wake`; its outcome is the version of the weights."""
        work = {"sleep": self._engine.sleep, "wake": self._engine.wake}[name]

        def called() -> int:
            work()
            return self._engine.weight_version

        self._queue(session, number, name, called)

    def collect(self, session: Session, number: int, *, seconds: float) -> Outcome | None:
        """The outcome of a job, once; None where it is not there within `seconds`."""
        outcome = session.outcomes.get(number)
        if outcome is None:
            raise Refused(404, f"job {number} was not asked for, or was collected before")
        if not self._wait(session, outcome.done, seconds):
            return None
        session.outcomes.pop(number, None)
        return outcome

    def begin_sync(
        self, session: Session, number: int, version: int, *, address: str, joined: bool
    ) -> None:
        """Queue the taking of weights; its outcome is their version.

        `joined` says that the trainer still has its side of the group; without it both make a new
        one.
        """
        sync = WeightSync(
            version,
            backend=session.backend,
            device=torch.device(self.identity.where["device"]),
            seconds=self.sync_seconds,
            alive=lambda: self._still_has(session),
        )

        def taken() -> int:
            try:
                if not joined:
                    session.drop_group()
                if session.group is None:
                    session.num_groups += 1
                    session.group = sync.join(
                        session.store, address=address, attempt=session.num_groups
                    )
                tensors = sync.tensors(session.group)
                if self.identity.takes == "adapter" and self._load_adapter is not None:
                    self._load_adapter(version, tensors)
                else:
                    self._engine.load_weights(version, tensors)
                sync.finish()
            except BaseException as error:
                sync.fail(error)
                session.drop_group()
                raise
            return self._engine.weight_version

        self._queue(session, number, f"loading version {version}", taken)
        session.sync = sync

    def sync_is_ready(self, session: Session, *, seconds: float) -> int | None:
        """Number of the group to join once the engine takes weights, 0 for the one at hand.

        None where the engine does not take them within `seconds`.
        """
        sync = self._sync(session)
        if not self._wait(session, sync.ready, seconds):
            return None
        sync.raise_failure()
        return sync.attempt

    def add_bucket(self, session: Session, rows: Any, num_bytes: int) -> None:
        """The description of the next bytes; returns when the server waits for them."""
        self._sync(session).offer(rows, num_bytes)

    def end_sync(self, session: Session, checksum: str) -> None:
        """No more weights: the outcome says whether they all arrived."""
        self._sync(session).close(checksum)
        session.sync = None

    def _queue(self, session: Session, number: int, name: str, work: Callable[[], Any]) -> None:
        if number in session.outcomes:
            raise Refused(409, f"job {number} was asked for before")
        if len(session.outcomes) >= MAX_UNCOLLECTED:
            raise Refused(429, f"{MAX_UNCOLLECTED} jobs were asked for and not collected")

        def named() -> Any:
            self._busy = name
            try:
                return work()
            finally:
                self._busy = ""

        outcome = session.outcomes[number] = Outcome()
        self._jobs.put((session, outcome, named))

    def _sync(self, session: Session) -> WeightSync:
        if session.sync is None:
            raise Refused(409, "no weights are expected", hint="begin with /weights/begin")
        return session.sync

    def _wait(self, session: Session, event: threading.Event, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not event.wait(min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))):
            self._check(session)
            if time.monotonic() >= deadline:
                return False
        return True

    def _still_has(self, session: Session) -> bool:
        self._expire()
        return not session.ended

    def _check(self, session: Session) -> None:
        if self._stopping:
            raise Refused(503, "the server is shutting down", hint="start `workings serve` again")
        if session.ended:
            raise Refused(410, "the trainer gave the server up")

    def _expire(self) -> None:
        with self._lock:
            session = self._session
            if session is None:
                return
            if self._clock() - session.last_heard > self._lease_seconds:
                self._end_session()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.ended = True
            session.drop_group()
