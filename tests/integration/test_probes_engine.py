"""A18a: an engine in another process that dies or hangs in a sync is named within a time limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings import (
    Checkpointer,
    Engine,
    EngineError,
    Grader,
    PromptSampler,
    Recorder,
    RunPaths,
    SamplingParams,
    ScriptedEngine,
    StopRequest,
    build_reward,
    compose,
    encode_prompts,
    load_problems,
    load_template,
    train_grpo,
)
from workings.rollout.process_engine import ProcessEngine

TOKENIZER = tiny_tokenizer()


class TroubledEngine(ScriptedEngine):
    """Takes the weights it starts with; in the next sync it dies or hangs at the third tensor."""

    def __init__(self, trouble: Callable[[], None]) -> None:
        super().__init__(TOKENIZER, ["12", "a"])
        self._trouble = trouble

    def load_weights(self, version: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        if version > 0:
            for place, _ in enumerate(tensors):
                if place == 2:
                    self._trouble()
        super().load_weights(version, tensors)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(120)


def dying_engine() -> Engine:
    return TroubledEngine(die)


def hanging_engine() -> Engine:
    return TroubledEngine(hang)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (dying_engine, r"was ended by signal 9 \(SIGKILL\); it was needed for load_weights of v"),
        (hanging_engine, "did not answer to load_weights of version 1 within 2 s and was killed"),
    ],
)
def test_a18a_an_engine_lost_in_a_sync_is_named(
    build: Callable[[], Engine], message: str, tmp_path: Path
) -> None:
    config = compose(
        ["quickstart"],
        ["model.name_or_path=tiny", "max_steps=3", "prompts_per_step=2", "num_generations=2"],
        kind="grpo",
    )
    problems = load_problems("arithmetic", options={"num_problems": 4, "terms": 2}).items
    engine = ProcessEngine(build, sync_seconds=2.0)
    recorder = Recorder(tmp_path)
    started = time.monotonic()
    with recorder, Grader() as grader, pytest.raises(EngineError, match=message):
        train_grpo(
            config,  # type: ignore[arg-type]
            model=tiny_model(TOKENIZER),
            engine=engine,
            sampler=PromptSampler(
                encode_prompts(problems, load_template("think"), TOKENIZER).items,
                prompts_per_step=2,
                seed=0,
            ),
            sampling=SamplingParams(max_tokens=6),
            reward=build_reward("r1_zero", grader=grader),
            recorder=recorder,
            checkpointer=Checkpointer(
                RunPaths(folder=tmp_path), TOKENIZER, recorder, kind="grpo", config_text=""
            ),
            stop=StopRequest(),
        )
    assert time.monotonic() - started < 20
    engine.close()
