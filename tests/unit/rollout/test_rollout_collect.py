"""Hop 2 and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.rollout.collect import collect_groups, completion_metrics
from workings.rollout.engine import SamplingParams
from workings.rollout.scripted import ScriptedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Problem, Prompt, Sample

TOKENIZER = tiny_tokenizer()
SAMPLING = SamplingParams(max_tokens=12)


def prompt(name: str, text: str = "hi") -> Prompt:
    problem = Problem(id=name, question=text, answer="1")
    return Prompt(problem=problem, ids=tuple(TOKENIZER.encode(text)), text=text)


def real_engine() -> TransformersEngine:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    return TransformersEngine(model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id])


def bent(change: Callable[[list[list[Sample]]], list[list[Sample]]]) -> Any:
    """A scripted engine whose samples are changed on the way out."""
    engine = ScriptedEngine(TOKENIZER, ["abc"])
    return SimpleNamespace(
        generate=lambda requests, sampling: change(engine.generate(requests, sampling))
    )


def test_A17b_groups_hold_what_the_engine_gave() -> None:
    engine = ScriptedEngine(TOKENIZER, ["one", "two"], logprob=-0.5)
    groups = collect_groups(
        engine, [prompt("a"), prompt("b")], SAMPLING, num_samples=2, seed=0, expected_version=0
    )
    assert [group.prompt.problem.id for group in groups] == ["a", "b"]
    assert [rollout.text for rollout in groups[1].rollouts] == ["one", "two"]
    for group in groups:
        for rollout in group.rollouts:
            assert all(rollout.mask)
            assert not any(rollout.off_policy)
            assert len(rollout.ids) == len(rollout.mask) == len(rollout.sampling_logprobs)
            assert rollout.sampling_logprobs[0] == -0.5
            assert rollout.source == "policy"
            assert rollout.reward is None


def test_D5_draws_depend_on_seed_and_problem_alone() -> None:
    engine = real_engine()
    prompts = [prompt("a"), prompt("b"), prompt("c", "ho")]
    first = collect_groups(engine, prompts, SAMPLING, num_samples=3, seed=1)
    again = collect_groups(engine, prompts[::-1], SAMPLING, num_samples=3, seed=1)[::-1]
    other = collect_groups(engine, prompts, SAMPLING, num_samples=3, seed=2)
    ids = [[rollout.ids for rollout in group.rollouts] for group in first]
    assert ids == [[rollout.ids for rollout in group.rollouts] for group in again]
    assert ids != [[rollout.ids for rollout in group.rollouts] for group in other]
    assert ids[0] != ids[1], "equal prompts of different problems draw apart"
    assert len({tuple(completion) for completion in ids[0]}) == 3


def test_the_same_problem_twice_is_drawn_twice() -> None:
    groups = collect_groups(
        real_engine(), [prompt("a"), prompt("a")], SAMPLING, num_samples=2, seed=1
    )
    first, second = ([r.ids for r in group.rollouts] for group in groups)
    assert first != second


def test_D12_stale_weights_raise_beyond_the_allowed_lag() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a"], stale=True)
    engine.load_weights(1, iter(()))
    with pytest.raises(EngineError, match="version 0; the trainer is at 1") as caught:
        collect_groups(engine, [prompt("a")], SAMPLING, num_samples=1, seed=0, expected_version=1)
    assert "load_weights" in str(caught.value.hint)
    groups = collect_groups(
        engine,
        [prompt("a")],
        SAMPLING,
        num_samples=1,
        seed=0,
        expected_version=1,
        max_staleness=1,
    )
    assert groups[0].rollouts[0].weight_version == 0


def test_wrong_answers_of_an_engine_raise() -> None:
    def collect(change: Any) -> None:
        collect_groups(bent(change), [prompt("a")], SAMPLING, num_samples=2, seed=0)

    with pytest.raises(EngineError, match="0 groups for 1 prompts"):
        collect(lambda groups: [])
    with pytest.raises(EngineError, match="1 samples for problem 'a', not 2"):
        collect(lambda groups: [group[:1] for group in groups])
    with pytest.raises(EngineError, match="4 ids, 1 logprobs and 4 kept masses"):
        collect(lambda groups: [[replace(s, sampling_logprobs=[0.0]) for s in groups[0]]])
    with pytest.raises(EngineError, match="at least 1"):
        collect(
            lambda groups: [
                [replace(s, ids=[], sampling_logprobs=[], kept_mass=[]) for s in groups[0]]
            ]
        )


def test_completion_metrics() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a", "a", "abc", "x" * 30])
    groups = collect_groups(engine, [prompt("a"), prompt("b")], SAMPLING, num_samples=2, seed=0)
    assert completion_metrics(groups, weight_version=2) == {
        "completion_length/mean": (2 + 2 + 4 + 12) / 4,
        "completion_length/min": 2.0,
        "completion_length/max": 12.0,
        "truncated_fraction": 0.25,
        "unique_completion_fraction": 0.75,
        "weight_version_lag": 2.0,
        "weight_version_lag/mean": 2.0,
    }
    assert completion_metrics(groups)["weight_version_lag"] == 0.0
    with pytest.raises(ValueError, match="at least one rollout"):
        completion_metrics([])
