"""An inference server and its trainer in one process: the whole protocol, over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ConfigError, EngineError, EngineMemoryError
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout import server_engine
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.server import buckets
from workings.rollout.server import http as server_http
from workings.rollout.server.connection import Connection
from workings.rollout.server.fingerprint import model_fingerprint, tokenizer_fingerprint
from workings.rollout.server.http import HEADER, InferenceServer
from workings.rollout.server.service import Identity, Service
from workings.rollout.server.weight_group import whereabouts
from workings.rollout.server.wire import unpack
from workings.rollout.server_engine import ServerEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Sample

TOKENIZER = tiny_tokenizer()
EOS = (TOKENIZER.eos_token_id,)
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=3, seed=seed)
    for seed, text in enumerate(("hello", "What is 3+4?", "a"))
]
SAMPLING = SamplingParams(temperature=0.9, top_p=0.8, max_tokens=12, stop=("q",))
CPU = torch.device("cpu")


def copy_engine(seed: int = 0) -> TransformersEngine:
    """An engine with weights of its own."""
    model = tiny_model(TOKENIZER, seed=seed)
    return TransformersEngine(model, TOKENIZER, eos_token_ids=EOS, share_weights=False)


def identity(**changes: Any) -> Identity:
    settings: dict[str, Any] = {
        "engine": "TransformersEngine",
        "model": model_fingerprint(tiny_model(TOKENIZER)),
        "tokenizer": tokenizer_fingerprint(TOKENIZER, EOS),
        "where": whereabouts(CPU),
        "weights_dtype": "float32",
        "takes": "full",
        "version": "0",
    }
    return Identity(**{**settings, **changes})


@contextlib.contextmanager
def served(
    engine: Any, *, token: str | None = None, load_adapter: Any = None, **settings: Any
) -> Iterator[InferenceServer]:
    changes = {"takes": "adapter"} if load_adapter else {}
    service = Service(
        engine, identity(**changes), host="127.0.0.1", load_adapter=load_adapter, **settings
    )
    server = InferenceServer(service, host="127.0.0.1", port=0, token=token)
    threads = [threading.Thread(target=t) for t in (server.serve_forever, service.serve_jobs)]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        service.stop()
        server.shutdown()
        for thread in threads:
            thread.join(10)
        server.server_close()
        assert not any(thread.is_alive() for thread in threads)


def trainer(server: InferenceServer, policy: Any = None, **settings: Any) -> ServerEngine:
    defaults: dict[str, Any] = {"eos_token_ids": EOS, "connect_seconds": 0.0, "sync_seconds": 20.0}
    return ServerEngine(
        server.url, policy or tiny_model(TOKENIZER), TOKENIZER, **{**defaults, **settings}
    )


@pytest.fixture
def pair() -> Iterator[ServerEngine]:
    with served(copy_engine()) as server, contextlib.closing(trainer(server)) as engine:
        yield engine


def flat(groups: Sequence[Sequence[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]


def weights(seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    return named_full_weights(tiny_model(TOKENIZER, seed=seed))


# ------------------------------------------------------------------------------- samples


def test_samples_are_those_of_the_engine_in_process(pair: ServerEngine) -> None:
    policy = tiny_model(TOKENIZER, seed=5)
    local = TransformersEngine(policy, TOKENIZER, eos_token_ids=EOS)
    local.load_weights(2, named_full_weights(policy))
    pair.load_weights(2, named_full_weights(policy))
    for sampling in (SAMPLING, SamplingParams(temperature=0, max_tokens=9, min_tokens=4)):
        assert pair.generate(REQUESTS, sampling) == local.generate(REQUESTS, sampling)
    assert pair.weight_version == 2
    assert pair.generate([], SAMPLING) == []


def test_new_weights_change_the_samples_and_their_version(pair: ServerEngine) -> None:
    groups = {}
    for version in (1, 2):
        pair.load_weights(version, weights(version))
        groups[version] = flat(pair.generate(REQUESTS, SAMPLING))
        assert {sample.weight_version for sample in groups[version]} == {version}
    assert [s.ids for s in groups[1]] != [s.ids for s in groups[2]]


def test_small_buckets_carry_the_same_weights(
    pair: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.load_weights(1, weights(1))
    before = pair.generate(REQUESTS, SAMPLING)

    def small(tensors: Any, device: Any, **options: Any) -> Any:
        return buckets.buckets_of(tensors, device, **options, bucket_bytes=1000)

    monkeypatch.setattr(server_engine, "buckets_of", small)
    pair.load_weights(1, weights(1))
    assert pair.generate(REQUESTS, SAMPLING) == before


def test_nothing_is_sampled_before_weights_came(pair: ServerEngine) -> None:
    with pytest.raises(EngineError, match="has no weights of this trainer"):
        pair.submit(REQUESTS, SAMPLING)


def test_requests_are_checked_before_they_are_sent(pair: ServerEngine) -> None:
    pair.load_weights(1, weights(1))
    with pytest.raises(EngineError, match="the model has 256"):
        pair.submit(REQUESTS, SamplingParams(max_tokens=500))


def test_sleep_and_wake_reach_the_engine(pair: ServerEngine) -> None:
    pair.load_weights(1, weights(1))
    pair.sleep()
    with pytest.raises(EngineError, match=r"127.0.0.1:\d+: the engine is asleep"):
        pair.generate(REQUESTS, SAMPLING)
    pair.wake()
    assert len(pair.generate(REQUESTS, SAMPLING)) == 3


class SlowEngine:
    """Samples when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inner = copy_engine()
        self.weight_version = 0

    def generate(self, requests: Any, sampling: Any) -> Any:
        assert self.go.wait(20)
        return self.inner.generate(requests, sampling)

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.inner.load_weights(version, tensors)
        self.weight_version = version


def test_submit_returns_at_once_and_collect_waits() -> None:
    slow = SlowEngine()
    with served(slow) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        first, second = engine.submit(REQUESTS, SAMPLING), engine.submit(REQUESTS[:1], SAMPLING)
        assert not first.ready()
        assert not second.ready()
        slow.go.set()
        assert len(engine.collect(second)) == 1
        assert first.ready()
        assert len(engine.collect(first)) == len(engine.collect(first)) == 3


def test_weights_wait_for_the_batches_before_them() -> None:
    slow = SlowEngine()
    with served(slow) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        pending = engine.submit(REQUESTS, SAMPLING)
        threading.Timer(0.5, slow.go.set).start()
        engine.load_weights(2, weights(2))
        assert {sample.weight_version for sample in flat(engine.collect(pending))} == {1}


def test_a_batch_that_takes_too_long_is_an_error() -> None:
    slow = SlowEngine()
    with served(slow) as server:
        with contextlib.closing(trainer(server, generate_seconds=0.6)) as engine:
            engine.load_weights(1, weights(1))
            with pytest.raises(EngineError, match=r"127.0.0.1:\d+ gave no samples within 0.6 s"):
                engine.generate(REQUESTS, SAMPLING)
        slow.go.set()


# ------------------------------------------------------------------------------- weights


def test_an_incomplete_set_is_refused_and_the_next_one_taken(pair: ServerEngine) -> None:
    pair.load_weights(1, weights(1))
    with pytest.raises(EngineError, match=r"was not given \d+ of its weights"):
        pair.load_weights(2, iter(list(weights(2))[1:]))
    with pytest.raises(EngineError, match="has no weights of this trainer"):
        pair.submit(REQUESTS, SAMPLING)
    pair.load_weights(3, weights(3))
    assert {s.weight_version for s in flat(pair.generate(REQUESTS, SAMPLING))} == {3}


def test_a_wrong_shape_is_refused_in_the_middle(
    pair: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(tensors: Any, device: Any, **options: Any) -> Any:
        return buckets.buckets_of(tensors, device, **options, bucket_bytes=1000)

    monkeypatch.setattr(server_engine, "buckets_of", small)
    bad = [(name, tensor[:-1] if "norm" in name else tensor) for name, tensor in weights(1)]
    with pytest.raises(EngineError, match=r"of shape \[31\]"):
        pair.load_weights(1, iter(bad))
    pair.load_weights(2, weights(2))


def test_a_trainer_that_fails_in_the_middle_does_not_block_the_server(
    pair: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(tensors: Any, device: Any, **options: Any) -> Any:
        return buckets.buckets_of(tensors, device, **options, bucket_bytes=1000)

    monkeypatch.setattr(server_engine, "buckets_of", small)

    def failing() -> Iterator[tuple[str, torch.Tensor]]:
        for number, named in enumerate(weights(1)):
            if number == 5:
                raise ValueError("a fault of the trainer")
            yield named

    started = time.monotonic()
    with pytest.raises(ValueError, match="a fault of the trainer"):
        pair.load_weights(1, failing())
    pair.load_weights(2, weights(2))
    assert time.monotonic() - started < 10


def test_weights_that_change_on_the_way_are_refused(
    pair: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = pair._send

    def damaging(bucket: buckets.Bucket) -> None:
        damaged = buckets.Bucket(entries=bucket.entries, data=bucket.data.clone())
        damaged.data[100] ^= 1
        send(damaged)

    monkeypatch.setattr(pair, "_send", damaging)
    with pytest.raises(EngineError, match="arrived damaged"):
        pair.load_weights(1, weights(1))


def test_a_channel_that_one_side_lost_is_made_anew() -> None:
    with served(copy_engine()) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        engine._drop_group()
        engine.load_weights(2, weights(2))
        server.service._session.drop_group()  # type: ignore[union-attr]
        engine.load_weights(3, weights(3))
        assert {s.weight_version for s in flat(engine.generate(REQUESTS, SAMPLING))} == {3}


def test_an_adapter_is_sent_as_one() -> None:
    taken = []

    def load_adapter(version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        taken.append((version, {name: tensor.clone() for name, tensor in tensors}))

    def adapted(seed: int) -> Any:
        model = tiny_model(TOKENIZER, seed=seed)
        return add_lora(model, rank=2, alpha=4.0, dropout=0.0, targets=("q_proj",), seed=seed)

    class Engine(SlowEngine):
        @property
        def weight_version(self) -> int:  # type: ignore[override]
            return taken[-1][0] if taken else 0

        @weight_version.setter
        def weight_version(self, value: int) -> None:
            pass

    policy = adapted(1)
    with served(Engine(), load_adapter=load_adapter) as server:
        with pytest.raises(EngineError, match="sends weights of kind full; the server expects ada"):
            trainer(server, policy)
        with contextlib.closing(trainer(server, policy, lora_by_adapter=True)) as engine:
            engine.load_weights(4, named_full_weights(policy))
            with pytest.raises(EngineError, match="sends the adapter of its own policy"):
                engine.load_weights(5, named_full_weights(adapted(2)))
    [(version, tensors)] = taken
    assert version == 4
    assert len(tensors) == 4
    assert all(".q_proj.lora_" in name for name in tensors)


# ------------------------------------------------------------------------------- who is served


def test_another_model_tokenizer_or_eos_is_refused() -> None:
    with served(copy_engine()) as server:
        with pytest.raises(EngineError, match="trains a model with fingerprint") as caught:
            trainer(server, tiny_model(TOKENIZER, layers=3))
        assert "127.0.0.1" in str(caught.value)
        with pytest.raises(EngineError, match="has a tokenizer with fingerprint"):
            trainer(server, eos_token_ids=(*EOS, 5))


def test_one_trainer_at_a_time_until_it_is_gone() -> None:
    with served(copy_engine()) as server:
        first = trainer(server)
        with pytest.raises(EngineError, match=r"in use by process \d+ on \S+, heard of \d+ s ago"):
            trainer(server)
        threading.Timer(0.7, first.close).start()
        second = trainer(server, connect_seconds=20.0)  # waits until the first one is done
        with pytest.raises(EngineError, match="is not connected"):
            first.sleep()
        second.close()


def test_a_trainer_that_is_not_heard_of_loses_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerEngine, "_stay_alive", lambda self: None)
    now = [0.0]
    with served(copy_engine(), lease_seconds=30.0, clock=lambda: now[0]) as server:
        first = trainer(server)
        first.load_weights(1, weights(1))
        now[0] = 31.0
        second = trainer(server)
        second.load_weights(2, weights(2))
        with pytest.raises(EngineError, match="does not know this trainer"):
            first.generate(REQUESTS, SAMPLING)
        second.close()
        first.load_weights(3, weights(3))  # connects again
        assert {s.weight_version for s in flat(first.generate(REQUESTS, SAMPLING))} == {3}
        first.close()


def test_a_waiting_trainer_is_heard_of_while_it_trains() -> None:
    ticks = itertools.count()
    still = served(copy_engine(), lease_seconds=1.2, clock=lambda: next(ticks) * 1e-6)
    with still as server, contextlib.closing(trainer(server)):
        session = server.service._session
        before, deadline = session.last_heard, time.monotonic() + 20
        while session.last_heard == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session.last_heard > before


def test_a_token_is_asked_for() -> None:
    token = "0123456789abcdef"
    with served(copy_engine(), token=token) as server:
        with pytest.raises(EngineError, match="the request carries no token") as caught:
            trainer(server, token="")
        assert "WORKINGS_SERVER_TOKEN" in str(caught.value.hint)
        with pytest.raises(EngineError, match="the request carries another token"):
            trainer(server, token="fedcba9876543210")
        trainer(server, token=token).close()


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKINGS_SERVER_TOKEN", "0123456789abcdef")
    with served(copy_engine(), token="0123456789abcdef") as server:
        trainer(server).close()


def test_a_server_that_is_not_there_is_named() -> None:
    with served(copy_engine()) as server:
        url = server.url
    started = time.monotonic()
    with pytest.raises(EngineError, match=r"at 127.0.0.1:\d+ cannot be reached") as caught:
        ServerEngine(url, tiny_model(TOKENIZER), TOKENIZER, eos_token_ids=EOS, connect_seconds=1.0)
    assert 1.0 <= time.monotonic() - started < 10
    assert "workings serve" in str(caught.value.hint)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "http://x", "https://x:1", "http://x:1/path"])
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected http://HOST:PORT"):
        Connection(url)


# ------------------------------------------------------------------------------- strangers


def answer(
    server: InferenceServer, method: str, path: str, *, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, Any]]:
    link = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    link.request(method, path, body=body, headers={HEADER: "1", **headers})
    response = link.getresponse()
    content = response.read()
    link.close()
    return response.status, unpack(content)[0] if content else {}


def test_health_says_what_the_server_is() -> None:
    with served(copy_engine()) as server:
        status, health = answer(server, "GET", "/health")
        assert status == 200
        assert health["engine"] == "TransformersEngine"
        assert (health["device"], health["weight_version"], health["client"]) == ("cpu", 0, None)
        assert health["model"] == model_fingerprint(tiny_model(TOKENIZER))
        assert Connection(server.url).health() == health


def test_strangers_and_nonsense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_http, "MAX_BODY_BYTES", 100)
    with served(copy_engine()) as server:
        link = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
        link.request("GET", "/health")
        assert link.getresponse().status == 400
        link.close()
        assert answer(server, "GET", "/nowhere")[0] == 404
        assert answer(server, "POST", "/claim", body=b"x" * 101)[0] == 413
        assert answer(server, "POST", "/claim", body=b"junk")[0] == 422
        assert answer(server, "POST", "/claim")[0] == 400
        status, header = answer(server, "POST", "/submit")
        assert (status, "session" in header["message"]) == (400, True)


def test_jobs_nobody_collects_are_bounded_and_unknown_ones_refused(pair: ServerEngine) -> None:
    pair.load_weights(1, weights(1))
    for _ in range(16):
        pair.submit(REQUESTS[:1], SAMPLING)
    with pytest.raises(EngineError, match="16 jobs were asked for and not collected"):
        pair.submit(REQUESTS[:1], SAMPLING)
    with pytest.raises(EngineError, match="job 999 was not asked for"):
        pair._wait_for(999, 1.0, "samples")


def test_an_engine_that_breaks_is_an_error_of_the_call_and_the_server_goes_on() -> None:
    class Broken(SlowEngine):
        def generate(self, requests: Any, sampling: Any) -> Any:
            if not self.go.is_set():
                self.go.set()
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return super().generate(requests, sampling)

    with served(Broken()) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        with pytest.raises(EngineError, match="the engine failed: RuntimeError: CUDA error"):
            engine.generate(REQUESTS, SAMPLING)
        assert len(engine.generate(REQUESTS, SAMPLING)) == 3


def ready_in_time(pending: Any) -> bool:
    deadline = time.monotonic() + 20
    while not pending.ready() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(pending.ready())


def test_an_error_that_was_there_when_asked_for_is_raised_by_collect() -> None:
    class Broken(SlowEngine):
        def generate(self, requests: Any, sampling: Any) -> Any:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with served(Broken()) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        pending = engine.submit(REQUESTS, SAMPLING)
        assert ready_in_time(pending)
        for _ in range(2):
            with pytest.raises(EngineError, match="the engine failed: RuntimeError: CUDA error"):
                engine.collect(pending)


def test_a_network_that_fails_while_asked_loses_no_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServerEngine, "_stay_alive", lambda self: None)
    with served(copy_engine()) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        pending = engine.submit(REQUESTS, SAMPLING)
        with monkeypatch.context() as broken:
            broken.setattr(http.client.HTTPConnection, "connect", _unreachable)
            assert pending.ready()
        assert len(engine.collect(pending)) == len(REQUESTS)


def _unreachable(self: http.client.HTTPConnection) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def test_a_lost_server_that_was_noticed_when_asked_is_connected_to_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServerEngine, "_stay_alive", lambda self: None)
    now = [0.0]
    with (
        served(copy_engine(), lease_seconds=30.0, clock=lambda: now[0]) as server,
        contextlib.closing(trainer(server)) as engine,
    ):
        engine.load_weights(1, weights(1))
        pending = engine.submit(REQUESTS, SAMPLING)
        now[0] = 31.0
        trainer(server).close()
        assert pending.ready()
        with pytest.raises(EngineError, match="does not know this trainer"):
            engine.collect(pending)
        with pytest.raises(EngineError, match="has no weights of this trainer"):
            engine.submit(REQUESTS, SAMPLING)
        engine.load_weights(2, weights(2))
        assert len(engine.generate(REQUESTS, SAMPLING)) == 3


def test_a_shortage_of_the_servers_memory_arrives_as_one() -> None:
    class Hungry(SlowEngine):
        def generate(self, requests: Any, sampling: Any) -> Any:
            return torch.empty(1 << 46, dtype=torch.uint8)

        def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
            super().load_weights(version, tensors)
            if version == 2:
                torch.empty(1 << 46, dtype=torch.uint8)

    with served(Hungry()) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        with pytest.raises(EngineMemoryError, match="DefaultCPUAllocator") as caught:
            engine.generate(REQUESTS, SAMPLING)
        assert "workings serve" in str(caught.value.hint)
        with pytest.raises(EngineMemoryError, match="DefaultCPUAllocator"):
            engine.load_weights(2, weights(2))
        engine.load_weights(3, weights(3))


def test_a_server_that_shuts_down_says_so_to_whoever_waits() -> None:
    slow = SlowEngine()
    with served(slow) as server, contextlib.closing(trainer(server)) as engine:
        engine.load_weights(1, weights(1))
        pending = engine.submit(REQUESTS, SAMPLING)
        threading.Timer(0.5, server.service.stop).start()
        threading.Timer(1.0, slow.go.set).start()
        with pytest.raises(EngineError, match="is shutting down"):
            engine.collect(pending)


def test_samples_of_another_engine_are_not_collected(pair: ServerEngine) -> None:
    class Other:
        def ready(self) -> bool:
            return True

    with pytest.raises(EngineError, match="a Other was not submitted to this engine"):
        pair.collect(Other())
