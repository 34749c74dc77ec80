"""`workings serve` in a process of its own: killed, stopped and restarted at several points."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import grpo_arguments

from served import Server
from tiny import save_tiny, tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.models.weights import named_full_weights
from workings.rollout import server_engine
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.server import buckets, connection
from workings.rollout.server_engine import ServerEngine
from workings.rollout.transformers_engine import TransformersEngine

TOKENIZER = tiny_tokenizer()
EOS = (TOKENIZER.eos_token_id,)
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=4, seed=seed)
    for seed, text in enumerate(("hello", "What is 3+4?", "a"))
]
SHORT = SamplingParams(temperature=1.0, max_tokens=16, stop=("q",))
LONG = SamplingParams(temperature=1.0, max_tokens=200, min_tokens=200)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture
def server(model: Path, tmp_path: Path) -> Iterator[Server]:
    started = Server(model, tmp_path / "errors")
    yield started
    started.end()


def connected(server: Server, **settings: Any) -> ServerEngine:
    defaults: dict[str, Any] = {
        "eos_token_ids": EOS,
        "connect_seconds": 5.0,
        "sync_seconds": 20.0,
    }
    return ServerEngine(server.url, tiny_model(TOKENIZER), TOKENIZER, **{**defaults, **settings})


def weights(seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    return named_full_weights(tiny_model(TOKENIZER, seed=seed))


def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(tensors: Any, device: Any, **options: Any) -> Any:
        return buckets.buckets_of(tensors, device, **options, bucket_bytes=1000)

    monkeypatch.setattr(server_engine, "buckets_of", small)


def test_samples_weights_a_death_and_another_server_in_its_place(
    server: Server, model: Path, tmp_path: Path
) -> None:
    policy = tiny_model(TOKENIZER, seed=3)
    local = TransformersEngine(policy, TOKENIZER, eos_token_ids=EOS)
    local.load_weights(7, named_full_weights(policy))
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(7, named_full_weights(policy))
        expected = local.generate(REQUESTS, SHORT)
        assert engine.generate(REQUESTS, SHORT) == expected

        server.kill()
        with pytest.raises(EngineError, match=rf"at 127.0.0.1:{server.port} cannot be reached"):
            engine.generate(REQUESTS, SHORT)

        again = Server(model, tmp_path / "again", port=server.port)
        try:
            assert again.url == server.url
            with pytest.raises(EngineError, match="does not know this trainer"):
                engine.generate(REQUESTS, SHORT)
            with pytest.raises(EngineError, match="has no weights of this trainer"):
                engine.generate(REQUESTS, SHORT)
            engine.load_weights(7, named_full_weights(policy))
            assert engine.generate(REQUESTS, SHORT) == expected
        finally:
            again.end()


def test_a_death_while_it_samples(server: Server) -> None:
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(1, weights(1))
        many = [
            Request(prompt_ids=REQUESTS[0].prompt_ids, num_samples=64, seed=n) for n in range(8)
        ]
        pending = engine.submit(many, LONG)
        assert not pending.ready()
        server.kill()
        started = time.monotonic()
        with pytest.raises(EngineError, match="cannot be reached"):
            engine.collect(pending)
        assert time.monotonic() - started < 20


def test_A18a_a_death_while_it_takes_weights(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_buckets(monkeypatch)
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(1, weights(1))

        def deadly() -> Iterator[tuple[str, torch.Tensor]]:
            for number, named in enumerate(weights(2)):
                if number == 6:
                    server.kill()
                    server.process.join()
                yield named

        started = time.monotonic()
        with pytest.raises(EngineError, match=rf"127.0.0.1:{server.port}"):
            engine.load_weights(2, deadly())
        assert time.monotonic() - started < 20
        assert engine.weight_version == 1


def test_A18a_a_death_in_the_middle_of_a_broadcast(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(1, weights(1))
        group = engine._group
        broadcast = group.broadcast  # type: ignore[union-attr]

        def after_the_death(*arguments: Any, **options: Any) -> None:
            server.kill()
            server.process.join()
            broadcast(*arguments, **options)

        monkeypatch.setattr(group, "broadcast", after_the_death)
        with pytest.raises(EngineError, match=r"sending weights to the inference server at 127"):
            engine.load_weights(2, weights(2))


def test_a_server_that_hangs_is_an_error_within_its_limit(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 2.0)
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(1, weights(1))
        server.kill(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"did not answer to /\S+ within 2 s"):
            engine.generate(REQUESTS, SHORT)
        with pytest.raises(EngineError, match=r"did not answer to /\S+ within 2 s"):
            engine.load_weights(2, weights(2))
        assert time.monotonic() - started < 30
        server.kill(signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_by_a_person_is_clean(server: Server, number: int) -> None:
    with contextlib.closing(connected(server)) as engine:
        engine.load_weights(1, weights(1))
        server.kill(number)
        server.process.join(60)
        assert server.process.exitcode == 0
        errors = server.errors.read_text()
        assert "note: shutting down" in errors
        assert "Traceback" not in errors
        with pytest.raises(EngineError, match="cannot be reached"):
            engine.generate(REQUESTS, SHORT)


def test_a_run_with_a_server_is_the_run_without(
    server: Server, model: Path, tmp_path: Path
) -> None:
    from workings.cli.main import main
    from workings.tracking.jsonl import read_metrics

    rows = {}
    for name, more in (
        ("here", ["engine.name=transformers"]),
        ("there", ["engine.name=server", f"engine.server_url={server.url}"]),
    ):
        arguments = grpo_arguments(model, tmp_path, *more, "max_steps=2", name=name)
        assert main([*arguments, "checkpoint.every_steps=0"]) == 0
        metrics = read_metrics(tmp_path / name / "metrics.jsonl")
        rows[name] = [
            {
                key: value
                for key, value in row.items()
                if ("loss" in key or "reward" in key) and "timing" not in key
            }
            for row in metrics
        ]
    assert len(rows["here"]) == len(rows["there"]) >= 2
    for here, there in zip(rows["here"], rows["there"], strict=True):
        assert here == there
