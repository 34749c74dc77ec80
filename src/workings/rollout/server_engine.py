"""An engine on another device or host: `workings serve` behind the `Engine` protocol.

    this process                                   the server's process
    submit, collect ───────────── HTTP ──────────> its engine samples, whatever the trainer does
    load_weights ──── HTTP (descriptions) ───────> its engine takes them
                 ──── NCCL or gloo (bytes) ──────>

The server may die, hang or be restarted: each call then raises an EngineError that names it, within
its time limit. A restarted one is connected to by the next `load_weights`, and nothing is sampled
before that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from workings.data.tokenizer import Tokenizer
from workings.errors import EngineError
from workings.models.adapter_weights import is_own_weight, named_adapter_weights
from workings.models.weights import base_model
from workings.rollout.engine import Pending, Request, SamplingParams
from workings.rollout.one_process import check_one_process
from workings.rollout.requests import check_request, describe_sampling
from workings.rollout.server.buckets import Bucket, Checksum, buckets_of, description
from workings.rollout.server.connection import Connection, LostSession, Unreachable
from workings.rollout.server.fingerprint import model_fingerprint, tokenizer_fingerprint
from workings.rollout.server.service import PROTOCOL
from workings.rollout.server.weight_group import (
    TRAINER,
    WeightGroup,
    join_store,
    whereabouts,
)
from workings.rollout.server.wire import pack_requests, unpack, unpack_samples
from workings.types import Sample

TOKEN_VARIABLE = "WORKINGS_SERVER_TOKEN"
WAIT_SECONDS = 10.0
RETRY_SECONDS = 0.5


class Submitted:
    """A batch that the server has been sent."""

    def __init__(self, engine: ServerEngine, session: str, number: int) -> None:
        self._engine = engine
        self.session = session
        self.number = number
        self.samples: list[list[Sample]] | None = None
        self.error: EngineError | None = None

    def ready(self) -> bool:
        """True once `collect` returns at once, be it with an error."""
        return self._engine.is_ready(self)


class ServerEngine:
    """The engine of an inference server.

    Args:
        url: "http://HOST:PORT", as `workings serve` prints it.
        policy: the trainer's model; the server has to have the same architecture.
        tokenizer, eos_token_ids: the trainer's; the server has to have the same.
        token: the server's, where it has one; by default from WORKINGS_SERVER_TOKEN.
        lora_by_adapter: True sends the policy's adapter, False merged weights.
        connect_seconds: longest wait for a server that does not answer yet, or is in use.
        generate_seconds: longest wait for the samples of one batch.
        sync_seconds: longest wait for the server to take a part of the weights.

    Raises EngineError where the server is not there, is in use, or has another model or tokenizer.
    Sampling needs `load_weights` first. It is not made for use by several threads.
    """

    def __init__(
        self,
        url: str,
        policy: Any,
        tokenizer: Tokenizer,
        *,
        eos_token_ids: Sequence[int],
        token: str | None = None,
        lora_by_adapter: bool = False,
        connect_seconds: float = 60.0,
        generate_seconds: float = 3600.0,
        sync_seconds: float = 120.0,
    ) -> None:
        check_one_process("an inference server")
        token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        self._connection = Connection(url, token=token or None)
        self._policy = policy if lora_by_adapter else None
        self._eos_token_ids = tuple(eos_token_ids)
        model = base_model(policy)
        embedding = model.get_input_embeddings().weight
        self._vocabulary: int = embedding.shape[0]
        self._max_positions: int | None = getattr(
            model.config.get_text_config(), "max_position_embeddings", None
        )
        self._device: torch.device = embedding.device
        self._claim: dict[str, Any] = {
            "protocol": PROTOCOL,
            "model": model_fingerprint(policy),
            "tokenizer": tokenizer_fingerprint(tokenizer, self._eos_token_ids),
            "sends": "adapter" if lora_by_adapter else "full",
            "where": whereabouts(self._device),
            "client": f"process {os.getpid()} on {socket.gethostname()}",
        }
        self._connect_seconds = connect_seconds
        self._generate_seconds = generate_seconds
        self._sync_seconds = sync_seconds
        self._session: dict[str, Any] | None = None
        self._group: WeightGroup | None = None
        self._last_number = 0
        self._weight_version = 0
        self._has_weights = False
        self._closing = threading.Event()
        self._connect()
        threading.Thread(target=self._stay_alive, daemon=True).start()

    @property
    def weight_version(self) -> int:
        """Version given to the last `load_weights` that the server took."""
        return self._weight_version

    @property
    def where(self) -> str:
        """The server, its engine, and how weights get there, for a log line."""
        session = self._session or {}
        return (
            f"{self._connection.name}, engine {session.get('engine')}; weights by "
            f"{session.get('backend')} ({session.get('reason')})"
        )

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Pending:
        """Sends the batch; the server samples while the caller does something else."""
        for request in requests:
            check_request(
                request,
                sampling,
                vocabulary=self._vocabulary,
                max_positions=self._max_positions,
            )
        session = self._with_weights()
        number = self._next_number()
        body = pack_requests(requests, sampling, session=session["session"], number=number)
        with self._lost_is_said():
            self._connection.send("/submit", body)
        return Submitted(self, session["session"], number)

    def collect(self, pending: Pending) -> list[list[Sample]]:
        """One list per request; waits for the server."""
        self._check_mine(pending)
        assert isinstance(pending, Submitted)
        if pending.samples is None:
            if pending.error is not None:
                with self._lost_is_said():
                    raise pending.error
            body = self._wait_for(pending.number, self._generate_seconds, "samples")
            pending.samples = unpack_samples(body)
        return pending.samples

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        """`collect(submit(...))`."""
        return self.collect(self.submit(requests, sampling))

    def is_ready(self, pending: Submitted) -> bool:
        """True where a batch is there, or never will be."""
        if pending.samples is not None or pending.error is not None or self._session is None:
            return True
        try:
            body = self._post("/collect", number=pending.number)
            if body:
                pending.samples = unpack_samples(body)
        except Unreachable:
            return True  # `collect` asks again
        except EngineError as error:
            pending.error = error  # the server tells it once; `collect` raises it
            return True
        return bool(body)

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Sends the tensors, checked by name, shape, dtype and a sum over their bytes.

        Connects again to a server that was restarted. Waits for batches that were submitted before.
        """
        supply = tensors if self._policy is None else self._adapter_of(self._policy, tensors)
        self._has_weights = False
        number = self._next_number()
        self._begin_anywhere(number, version)
        session = self._session
        assert session is not None
        checksum = Checksum(version)
        dtype = getattr(torch, session["weights_dtype"])
        device = self._device if session["backend"] == "nccl" else torch.device("cpu")
        try:
            for bucket in buckets_of(supply, device, dtype=dtype):
                self._send(bucket)
                checksum.add(bucket)
            self._post("/weights/end", checksum=checksum.value())
            answer = self._wait_for(number, self._sync_seconds, f"weights of version {version}")
        except BaseException:
            self._give_up(number)
            raise
        taken = unpack(answer)[0]["weight_version"]
        if taken != version:
            raise EngineError(
                f"{self._connection.name} has weights of version {taken} after version {version} "
                "was sent"
            )
        self._weight_version = version
        self._has_weights = True

    def sleep(self) -> None:
        """The server's engine gives memory back until `wake`."""
        self._call("sleep")

    def wake(self) -> None:
        """The server's engine is ready to sample again."""
        self._call("wake")

    def close(self) -> None:
        """Lets go of the server, which goes on without this trainer."""
        self._closing.set()
        if self._session is not None:
            with contextlib.suppress(EngineError):
                self._post("/release")
        self._disconnect()

    def describe(self, sampling: SamplingParams) -> str:
        """The settings in effect, in one line that says where they come from."""
        return describe_sampling(sampling, self._eos_token_ids)

    # ------------------------------------------------------------------ weights

    def _begin_anywhere(self, number: int, version: int) -> None:
        """Begin with the server at hand, or with one that was started in its place."""
        if self._session is None:
            self._connect()
        try:
            self._begin(number, version)
        except LostSession:
            self._disconnect()
            self._connect()
            self._begin(number, version)

    def _begin(self, number: int, version: int) -> None:
        """Returns once the server's engine takes weights."""
        joined = self._group is not None
        self._post("/weights/begin", number=number, version=version, joined=joined)
        deadline = time.monotonic() + self._generate_seconds
        try:
            while not (answer := self._post("/weights/ready", seconds=WAIT_SECONDS)):
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"{self._connection.name} did not come to version {version} within "
                        f"{self._generate_seconds:g} s"
                    )
            attempt = unpack(answer)[0]["attempt"]
            if attempt:
                self._join(attempt)
        except LostSession:
            raise
        except BaseException:
            self._give_up(number)
            raise

    def _give_up(self, number: int) -> None:
        """Let the server know, as far as it can be reached, that no more weights come."""
        self._drop_group()
        with contextlib.suppress(EngineError):
            self._post("/weights/end", checksum="the trainer gave up")
        with contextlib.suppress(EngineError):
            self._post("/collect", number=number, seconds=RETRY_SECONDS)

    def _join(self, attempt: int) -> None:
        session = self._session
        assert session is not None
        self._drop_group()
        store = join_store(self._connection.host, session["store_port"], seconds=self._sync_seconds)
        self._group = WeightGroup(
            store,
            TRAINER,
            backend=session["backend"],
            address=self._connection.local_address(),
            attempt=attempt,
            seconds=self._sync_seconds,
        )

    def _send(self, bucket: Bucket) -> None:
        self._post(
            "/weights/bucket",
            seconds=self._sync_seconds,
            tensors=description(bucket.entries),
            num_bytes=bucket.data.numel(),
        )
        if self._group is None:
            raise EngineError("the channel for weights is closed", hint="call load_weights again")
        self._group.broadcast(
            bucket.data,
            seconds=self._sync_seconds,
            alive=self._server_lives,
            what=f"sending weights to {self._connection.name}",
        )

    def _adapter_of(
        self, policy: Any, tensors: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterable[tuple[str, torch.Tensor]]:
        for name, tensor in tensors:
            if not is_own_weight(policy, name, tensor):
                raise EngineError(
                    f"the engine sends the adapter of its own policy, but was given another {name}",
                    hint="pass named_full_weights of that policy, or set lora_by_adapter=False",
                )
            break
        return named_adapter_weights(policy)

    def _drop_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.abort()

    # ------------------------------------------------------------------ the session

    def _connect(self) -> dict[str, Any]:
        """Claim the server, waiting for one that starts or is about to be free."""
        deadline = time.monotonic() + self._connect_seconds
        while True:
            try:
                answer = self._connection.post("/claim", **self._claim)
                self._session = unpack(answer)[0]
                return self._session
            except EngineError as error:
                waiting = "in use by" in error.message or "cannot be reached" in error.message
                if not waiting or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _disconnect(self) -> None:
        self._session = None
        self._has_weights = False
        self._drop_group()

    def _stay_alive(self) -> None:
        """Tell the server every few seconds that this trainer still wants it."""
        while not self._closing.wait(self._lease_seconds() / 6):
            session = self._session
            if session is not None:
                with contextlib.suppress(EngineError):  # the next call of the trainer says it
                    self._connection.post("/alive", session=session["session"])

    def _lease_seconds(self) -> float:
        session = self._session
        return 30.0 if session is None else float(session["lease_seconds"])

    def _server_lives(self) -> bool:
        try:
            self._post("/alive")
        except EngineError:
            return False
        return True

    def _with_weights(self) -> dict[str, Any]:
        if self._session is None or not self._has_weights:
            raise EngineError(
                f"{self._connection.name} has no weights of this trainer",
                hint="call load_weights before sampling",
            )
        return self._session

    def _post(self, path: str, *, seconds: float = 0.0, **header: Any) -> bytes:
        if self._session is None:
            raise EngineError(
                f"{self._connection.name} is not connected", hint="call load_weights first"
            )
        session = self._session["session"]
        return self._connection.post(path, seconds=seconds, session=session, **header)

    def _call(self, name: str) -> None:
        number = self._next_number()
        with self._lost_is_said():
            self._post("/call", number=number, name=name)
            self._wait_for(number, self._generate_seconds, name)

    def _wait_for(self, number: int, seconds: float, what: str) -> bytes:
        deadline = time.monotonic() + seconds
        with self._lost_is_said():
            while True:
                rest = max(0.0, deadline - time.monotonic())
                body = self._post("/collect", number=number, seconds=min(WAIT_SECONDS, rest))
                if body:
                    return body
                if time.monotonic() >= deadline:
                    raise EngineError(
                        f"{self._connection.name} gave no {what} within {seconds:g} s",
                        hint="a larger limit helps only if it was slow rather than stuck",
                    )

    @contextlib.contextmanager
    def _lost_is_said(self) -> Iterator[None]:
        """A server that does not know this trainer any more is connected to anew, later."""
        try:
            yield
        except LostSession:
            self._disconnect()
            raise

    def _check_mine(self, pending: Pending) -> None:
        if not isinstance(pending, Submitted):
            raise EngineError(f"a {type(pending).__name__} was not submitted to this engine")
        current = None if self._session is None else self._session["session"]
        if pending.samples is None and pending.session != current:
            raise EngineError(
                f"{self._connection.name} was restarted after this batch was submitted; its "
                "samples are lost",
                hint="submit it again",
            )

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number
