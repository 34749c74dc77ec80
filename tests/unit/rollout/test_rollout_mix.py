"""A teacher's traces beside the policy's own samples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tiny import tiny_model, tiny_tokenizer
from workings.data.encoding import encode_prompts
from workings.data.templates import PromptTemplate
from workings.data.traces import EncodedTrace, encode_traces
from workings.errors import ConfigError, EngineError
from workings.rollout.collect import collect_groups, completion_metrics
from workings.rollout.engine import SamplingParams
from workings.rollout.mix import (
    choose_traces,
    demonstration_rollout,
    kept_traces,
    mix_demonstrations,
    mix_metrics,
    samples_wanted,
    without_wrong_demonstrations,
)
from workings.rollout.scripted import ScriptedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Demonstration, Problem, Prompt, Rollout, RolloutGroup

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
SAMPLING = SamplingParams(max_tokens=12)
TEMPLATE = PromptTemplate(name="open", before="Q: ", after="\n<think>\n")


def prompts(*names: str) -> tuple[Prompt, ...]:
    problems = [Problem(id=name, question="hi", answer="4") for name in names]
    return encode_prompts(problems, TEMPLATE, TOKENIZER).items


def teach(*names: str, count: int = 1) -> dict[str, tuple[EncodedTrace, ...]]:
    rows = {
        name: tuple(
            Demonstration(
                id=f"{name}/trace{number}", question="hi", response=f"<think>\nt{number}\n</think>4"
            )
            for number in range(count)
        )
        for name in names
    }
    return dict(encode_traces(prompts(*names), rows, TEMPLATE, TOKENIZER).by_problem)


class Counting:
    """An engine that counts what it is asked for."""

    def __init__(self) -> None:
        self.engine = TransformersEngine(
            tiny_model(TOKENIZER), TOKENIZER, eos_token_ids=[EOS], max_batch_size=16
        )
        self.num_samples: list[int] = []
        self.seen: list[tuple[int, ...]] = []

    def generate(self, requests: Any, sampling: SamplingParams) -> Any:
        self.num_samples += [request.num_samples for request in requests]
        self.seen += [(*request.prompt_ids, *request.prefix_ids) for request in requests]
        return self.engine.generate(requests, sampling)


def sampled(
    asked: tuple[Prompt, ...], traces: dict[str, tuple[EncodedTrace, ...]], num_off: int = 1
) -> list[RolloutGroup]:
    wanted = samples_wanted(asked, traces, 8, num_off)
    engine = ScriptedEngine(TOKENIZER, ["one", "two"])
    return collect_groups(engine, asked, SAMPLING, num_samples=wanted, seed=0)


def mixed(
    groups: list[RolloutGroup], traces: dict[str, tuple[EncodedTrace, ...]], **settings: Any
) -> list[RolloutGroup]:
    given = {"num_off": 1, "num_generations": 8, "seed": 0, "step": 0, **settings}
    return mix_demonstrations(groups, traces, **given)


def test_pitfall_1_the_sampler_is_called_seven_times_per_prompt_and_never_sees_a_trace() -> None:
    engine = Counting()
    asked, traces = prompts("a", "b"), teach("a", "b")
    wanted = samples_wanted(asked, traces, 8, 1)
    groups = collect_groups(engine, asked, SAMPLING, num_samples=wanted, seed=0)  # type: ignore[arg-type]
    result = mixed(groups, traces)
    assert engine.num_samples == [7, 7]
    assert engine.seen == [prompt.ids for prompt in asked]
    assert [len(group.rollouts) for group in result] == [8, 8]


def test_a_teacher_row_is_data() -> None:
    asked, traces = prompts("a"), teach("a")
    row = mixed(sampled(asked, traces), traces)[0].rollouts[-1]
    assert row.text == "t0\n</think>4", "the tag that the prompt opens is not repeated"
    assert row.ids == traces["a"][0].ids
    assert row.ids[-1] == EOS
    assert row.source == "demonstration"
    assert row.finish_reason == "eos"
    assert row.weight_version == -1
    assert all(row.mask)
    assert all(row.off_policy)
    assert all(map(math.isnan, row.sampling_logprobs))
    assert list(row.kept_mass) == [1.0] * len(row.ids)
    assert row.recorded_logprobs == ()
    assert row.reward is None, "it is graded like every other row"


def test_recorded_probabilities_travel_with_the_row() -> None:
    trace = replace(teach("a")["a"][0])
    scored = replace(trace, logprobs=(-0.5,) * len(trace.ids))
    assert demonstration_rollout(scored).recorded_logprobs == scored.logprobs
    with pytest.raises(ValueError, match="recorded_logprobs"):
        replace(demonstration_rollout(scored), recorded_logprobs=(-0.5,))


def test_a_problem_with_a_null_target_is_sampled() -> None:
    asked, traces = prompts("a", "b"), teach("a")
    assert samples_wanted(asked, traces, 8, 1) == [7, 8]
    taught, ordinary = mixed(sampled(asked, traces), traces)
    assert [len(taught.rollouts), len(ordinary.rollouts)] == [8, 8]
    assert {rollout.source for rollout in ordinary.rollouts} == {"policy"}


def test_every_row_may_be_the_teachers() -> None:
    asked, traces = prompts("a"), teach("a", count=3)
    assert samples_wanted(asked, traces, 8, -1) == [0]
    groups = mixed(sampled(asked, traces, -1), traces, num_off=-1)
    rows = groups[0].rollouts
    assert [row.text[:2] for row in rows] == ["t0", "t1", "t2", "t0", "t1", "t2", "t0", "t1"]
    assert completion_metrics(groups) == {}, "nothing was sampled"


def test_several_traces_in_order_or_drawn_by_seed_step_and_problem() -> None:
    traces = teach("a", count=5)["a"]

    def names(step: int, choice: Any) -> list[str]:
        chosen = choose_traces(traces, 2, problem_id="a", seed=1, step=step, choice=choice)
        return [trace.id[-1] for trace in chosen]

    assert names(0, "first") == names(9, "first") == ["0", "1"]
    assert names(3, "random") == names(3, "random")
    drawn = [names(step, "random") for step in range(200)]
    assert all(first != second for first, second in drawn)
    counts = [sum(first == str(number) for first, _ in drawn) for number in range(5)]
    # 200 draws of one in five: 40 with a standard deviation of 5.7.
    assert all(20 < count < 60 for count in counts)


def test_targets_are_kept_with_a_probability() -> None:
    asked, traces = prompts(*(f"p{number}" for number in range(400))), {}
    one = teach("a")["a"]
    traces = {prompt.problem.id: one for prompt in asked}

    def kept(probability: float, step: int = 0) -> set[str]:
        return set(kept_traces(asked, traces, keep_prob=probability, seed=0, step=step))

    assert len(kept(1.0)) == 400
    assert kept(0.0) == set()
    assert 160 < len(kept(0.5)) < 240
    assert kept(0.5) == kept(0.5) != kept(0.5, step=1)
    assert kept(0.3) <= kept(0.5)
    with pytest.raises(ConfigError, match=r"target_keep_prob=1\.5"):
        kept(1.5)


def test_pitfall_8_the_traces_are_the_same_after_a_step() -> None:
    asked, traces = prompts("a"), teach("a")
    before = dict(traces)
    first = mixed(sampled(asked, traces), traces, step=0)
    second = mixed(sampled(asked, traces), traces, step=1)
    assert traces == before
    assert first[0].rollouts[-1] == replace(
        second[0].rollouts[-1], sampling_logprobs=first[0].rollouts[-1].sampling_logprobs
    )


def graded(group: RolloutGroup, right: list[bool]) -> RolloutGroup:
    rollouts = tuple(
        replace(rollout, reward=float(value), components={"answer": float(value)})
        for rollout, value in zip(group.rollouts, right, strict=True)
    )
    return replace(group, rollouts=rollouts)


def is_right(rollout: Rollout) -> bool:
    return rollout.components.get("answer", 0.0) > 0


def test_pitfall_9_a_wrong_teacher_is_counted_and_may_be_dropped() -> None:
    asked, traces = prompts("a", "b"), teach("a", "b")
    groups = mixed(sampled(asked, traces), traces)
    groups = [
        graded(groups[0], [True] + [False] * 6 + [True]),
        graded(groups[1], [False] * 8),
    ]
    metrics = mix_metrics(groups, is_right=is_right)
    assert metrics["off_policy/teacher_wrong"] == 1.0
    assert metrics["off_policy/teacher_right"] == 0.5
    assert metrics["off_policy/own_right"] == pytest.approx(1 / 14)
    assert metrics["off_policy/row_fraction"] == 2 / 16
    assert metrics["off_policy/guided_groups"] == 2.0
    taught = 2 * len(traces["a"][0].ids)
    total = sum(len(rollout.ids) for group in groups for rollout in group.rollouts)
    assert metrics["off_policy/token_fraction"] == taught / total

    kept, dropped = without_wrong_demonstrations(groups, is_right=is_right)
    assert dropped == 1
    assert kept[1].rollouts[-1].reward is None
    assert kept[0] == groups[0]
    assert [rollout.reward for rollout in kept[1].rollouts[:7]] == [0.0] * 7
    assert without_wrong_demonstrations(kept, is_right=is_right)[1] == 0


def test_completion_metrics_are_of_the_policy_alone() -> None:
    asked, traces = prompts("a"), teach("a")
    groups = sampled(asked, traces)
    before = completion_metrics(groups, weight_version=0)
    assert completion_metrics(mixed(groups, traces), weight_version=0) == before


def test_numbers_that_do_not_fit_are_said() -> None:
    asked, traces = prompts("a"), teach("a")
    with pytest.raises(ConfigError, match="num_off=9 rows of a group of 8"):
        samples_wanted(asked, traces, 8, 9)
    full = collect_groups(ScriptedEngine(TOKENIZER, ["x"]), asked, SAMPLING, num_samples=8, seed=0)
    with pytest.raises(
        EngineError, match="'a' has 8 sampled rows and 1 from elsewhere; expected 8"
    ):
        mixed(full, traces)
