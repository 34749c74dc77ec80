"""An engine in another process: the same samples, and no death or silence that goes unnoticed."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import torch
from bare_engines import (
    allocate_at_start,
    allocate_generating,
    broken_build,
    die_at_start,
    die_generating,
    hang_syncing,
    raise_syncing,
    slow_engine,
)

from tiny import tiny_model, tiny_tokenizer
from workings import (
    EngineError,
    Request,
    SamplingParams,
    TransformersEngine,
    named_full_weights,
)
from workings.errors import EngineMemoryError, is_out_of_memory
from workings.rollout.engine import Engine
from workings.rollout.engine_server import _tensors, send_tensor
from workings.rollout.process_engine import ProcessEngine

TOKENIZER = tiny_tokenizer()
SAMPLING = SamplingParams(max_tokens=6)
REQUESTS = [Request(prompt_ids=(10, 11, 12), num_samples=2, seed=3), Request(prompt_ids=(9,))]


def model_engine() -> Engine:
    model = tiny_model(TOKENIZER)
    return TransformersEngine(
        model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id], share_weights=False
    )


@pytest.fixture
def start() -> Iterator[Callable[..., ProcessEngine]]:
    engines = []

    def make(build: Callable[[], Engine], **limits: float) -> ProcessEngine:
        engines.append(ProcessEngine(build, **limits))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
        assert not psutil.pid_exists(engine.pid or 0)


def test_samples_are_those_of_the_engine_itself(start: Callable[..., ProcessEngine]) -> None:
    away, here = start(model_engine), model_engine()
    assert away.generate(REQUESTS, SAMPLING) == here.generate(REQUESTS, SAMPLING)
    changed = tiny_model(TOKENIZER, seed=5)
    for engine in (away, here):
        engine.load_weights(4, named_full_weights(changed))
        engine.sleep()
        engine.wake()
    assert away.weight_version == 4
    first, second = away.submit(REQUESTS, SAMPLING), away.submit(REQUESTS[:1], SAMPLING)
    assert away.collect(second) == here.generate(REQUESTS[:1], SAMPLING)
    samples = away.collect(first)
    assert samples == here.generate(REQUESTS, SAMPLING)
    assert samples[0][0].weight_version == 4
    assert first.ready()
    assert away.collect(first) == samples


def test_sampling_runs_beside_the_caller(start: Callable[..., ProcessEngine]) -> None:
    engine = start(slow_engine)
    pending = engine.submit(REQUESTS, SAMPLING)
    assert not pending.ready()
    deadline = time.monotonic() + 20
    while not pending.ready() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [len(group) for group in engine.collect(pending)] == [2, 1]
    with pytest.raises(EngineError, match="a str was not submitted to this engine"):
        engine.collect("batch")  # type: ignore[arg-type]


def test_errors_of_the_engine_arrive_and_it_goes_on(start: Callable[..., ProcessEngine]) -> None:
    engine = start(raise_syncing)
    with pytest.raises(EngineError, match="failed in load_weights of version 1") as caught:
        engine.load_weights(1, named_full_weights(tiny_model(TOKENIZER)))
    assert "in its own process: no such token" in caught.value.message
    assert caught.value.hint == "take another"
    assert "_perhaps" in caught.value.__notes__[0]
    assert len(engine.generate(REQUESTS, SAMPLING)) == 2
    assert engine.weight_version == 0


def test_a_shortage_of_memory_arrives_as_one(start: Callable[..., ProcessEngine]) -> None:
    engine = start(allocate_generating)
    for _ in range(2):  # the engine goes on
        with pytest.raises(EngineMemoryError, match="in generate, in its own process: MemoryError"):
            engine.generate(REQUESTS, SAMPLING)
    with pytest.raises(EngineMemoryError, match=r"in its start.*cannot be loaded") as caught:
        ProcessEngine(allocate_at_start)
    assert caught.value.hint == "take a smaller one"
    other = start(raise_syncing)
    with pytest.raises(EngineError) as caught:
        other.load_weights(1, named_full_weights(tiny_model(TOKENIZER)))
    assert not is_out_of_memory(caught.value)


def test_death_and_silence_are_named_in_time(start: Callable[..., ProcessEngine]) -> None:
    dying = start(die_generating)
    pending = dying.submit(REQUESTS, SAMPLING)
    with pytest.raises(EngineError, match=r"ended by signal 9 \(SIGKILL\); it was needed for gen"):
        dying.collect(pending)
    assert pending.ready()
    with pytest.raises(EngineError, match="needed for generate"):
        dying.generate(REQUESTS, SAMPLING)
    hanging = start(hang_syncing, sync_seconds=1.0)
    with pytest.raises(EngineError, match=r"not answer to load_weights of version 2 within 1 s"):
        hanging.load_weights(2, named_full_weights(tiny_model(TOKENIZER)))
    assert not psutil.pid_exists(hanging.pid or 0)


def test_a_stopped_process_does_not_hold_a_writer_up(start: Callable[..., ProcessEngine]) -> None:
    engine = start(slow_engine)
    large = [(str(n), torch.zeros(2**20)) for n in range(3)]
    engine.load_weights(1, large)  # by now the other process has imported torch
    engine._sync_seconds = 1.0

    def stopping() -> Iterator[tuple[str, torch.Tensor]]:
        yield large[0]
        os.kill(engine.pid or 0, signal.SIGSTOP)
        yield from large[1:]

    with pytest.raises(EngineError, match="needed for load_weights of version 2"):
        engine.load_weights(2, stopping())


def test_an_engine_that_cannot_be_built_says_why() -> None:
    with pytest.raises(EngineError, match=r"failed in its start.*ValueError: no such model"):
        ProcessEngine(broken_build)
    with pytest.raises(EngineError, match="exited with code 7; it was needed for its start"):
        ProcessEngine(die_at_start)


def test_the_death_of_the_parent_ends_the_engine() -> None:
    program = (
        "import sys, time; sys.path[:0] = sys.argv[1:];"
        "from bare_engines import slow_engine;"
        "from workings.rollout.engine import Request, SamplingParams;"
        "from workings.rollout.process_engine import ProcessEngine;"
        "engine = ProcessEngine(slow_engine);"
        "pending = engine.submit([Request(prompt_ids=(1,))], SamplingParams());"
        "print(engine.pid, flush=True); time.sleep(60)"
    )
    paths = [os.path.dirname(__file__), *(path for path in sys.path if path)]
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *paths], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


def test_tensors_of_any_shape_and_dtype_arrive() -> None:
    given = [
        ("matrix", torch.arange(6.0).reshape(2, 3).T),
        ("scalar", torch.tensor(2.5, dtype=torch.float64)),
        ("half", torch.tensor([1.5, -2.0], dtype=torch.bfloat16)),
        ("empty", torch.empty(0, 3, dtype=torch.float16)),
        ("flags", torch.tensor([True, False])),
    ]
    here, there = multiprocessing.Pipe()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    supply = _tensors(there, inbox, number=1)
    for name, tensor in given:
        send_tensor(here, name, tensor)
        inbox.put((there.recv(), there.recv_bytes()))
        got_name, got = next(supply)
        assert got_name == name
        assert got.dtype == tensor.dtype
        assert torch.equal(got, tensor)
    inbox.put(None)
    assert next(supply, None) is None
