"""Partial guidance: schedules, plans, and rollouts that begin with a teacher's tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tiny import tiny_model, tiny_tokenizer
from workings.data.traces import EncodedTrace
from workings.errors import ConfigError, EngineError
from workings.rollout.collect import collect_groups
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.mix import append_whole
from workings.rollout.prefixes import PrefixSchedule, TracePrefix, plan_prefixes, prefix_ratios
from workings.rollout.scripted import ScriptedEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.types import Problem, Prompt, RolloutGroup

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
HALF = PrefixSchedule(min_ratio=0.5, max_ratio=0.5)


def decode(ids: Any) -> str:
    return str(TOKENIZER.decode(list(ids), skip_special_tokens=True))


def prompt(name: str) -> Prompt:
    problem = Problem(id=name, question="hi", answer="1")
    return Prompt(problem=problem, ids=tuple(TOKENIZER.encode("hi")), text="hi")


def trace(text: str = "abcdefghij", *, scored: bool = False) -> EncodedTrace:
    ids = (*TOKENIZER.encode(text), EOS)
    logprobs = tuple(-0.125 * place for place in range(len(ids))) if scored else ()
    return EncodedTrace(id="t", ids=ids, text=text, logprobs=logprobs)


def ratios(schedule: PrefixSchedule, step: int = 0, rows: int = 3, name: str = "a") -> list[float]:
    return prefix_ratios(schedule, rows, step=step, seed=1, problem_id=name)


def test_random_is_uniform_and_a_function_of_seed_step_and_problem() -> None:
    schedule = PrefixSchedule(min_ratio=0.25, max_ratio=0.75)
    drawn = [value for step in range(400) for value in ratios(schedule, step)]
    assert all(0.25 <= value < 0.75 for value in drawn)
    # The mean of 1200 uniform draws of width 0.5 has a standard error of 0.0042.
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.015)
    assert ratios(schedule) == ratios(schedule)
    assert len({tuple(ratios(schedule, s, name=n)) for s in (0, 1) for n in "ab"}) == 4


def test_one_ratio_may_serve_all_rows_of_a_prompt() -> None:
    schedule = PrefixSchedule(min_ratio=0.0, max_ratio=1.0, share_across_samples=True)
    assert len(set(ratios(schedule))) == 1


def test_fixed_is_evenly_spaced_and_a_single_row_gets_the_largest() -> None:
    schedule = PrefixSchedule(name="fixed", min_ratio=0.2, max_ratio=0.8)
    assert ratios(schedule, rows=4) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert ratios(schedule, rows=1) == [0.8]
    assert ratios(schedule, rows=0) == []


@pytest.mark.parametrize(("step", "expected"), [(0, 0.8), (50, 0.4), (100, 0.0), (500, 0.0)])
def test_linear_falls_to_nothing(step: int, expected: float) -> None:
    schedule = PrefixSchedule(name="linear", steps=100, share_across_samples=True)
    assert ratios(schedule, step) == pytest.approx([expected] * 3)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("linear_max", {0: 0.8, 9: 0.8, 10: 0.72, 95: 0.08, 1000: 0.08}),
        ("reverse_linear", {0: 0.08, 9: 0.08, 10: 0.16, 95: 0.8, 1000: 0.8}),
    ],
)
def test_staircases_bound_a_uniform_draw(name: Any, bounds: dict[int, float]) -> None:
    schedule = PrefixSchedule(name=name, steps=100)
    for step, bound in bounds.items():
        drawn = [ratios(schedule, step, rows=1, name=str(n))[0] for n in range(300)]
        assert all(0.0 <= value < bound for value in drawn)
        assert max(drawn) > 0.97 * bound


def test_schedules_that_cannot_be_are_refused() -> None:
    def refused(match: str, **settings: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            PrefixSchedule(**settings)

    refused("linear_variance was never defined", name="linear_variance")
    refused("unknown prefix schedule 'lineer'; did you mean 'linear'", name="lineer")
    refused("0 <= min_ratio <= max_ratio <= 1", min_ratio=0.7, max_ratio=0.5)
    refused("linear_max_ratio=2", linear_max_ratio=2.0)
    refused("steps=0", steps=0)
    refused("linear gives all guided rows of a prompt one ratio", name="linear")
    refused("fixed gives every guided row", name="fixed", share_across_samples=True)


def plans_of(schedule: PrefixSchedule, *traces: EncodedTrace, num_off: int = 1) -> Any:
    (plan,) = plan_prefixes(
        [prompt("a")],
        {"a": traces} if traces else {},
        schedule,
        num_generations=4,
        num_off=num_off,
        seed=0,
        step=0,
    )
    return plan


def test_ratio_one_is_data_ratio_zero_is_a_sample() -> None:
    whole = plans_of(PrefixSchedule(), trace())
    assert (whole.num_samples, whole.prefixes, whole.whole) == (3, (), (trace(),))
    none = plans_of(PrefixSchedule(min_ratio=0.0, max_ratio=0.0), trace())
    assert (none.num_samples, none.prefixes, none.whole) == (4, (), ())
    short = plans_of(PrefixSchedule(min_ratio=0.05, max_ratio=0.05), trace())
    assert short.num_samples == 4, "int(10 * 0.05) tokens are none"
    assert plans_of(HALF).num_samples == 4, "a problem without a trace is sampled"


def test_a_prefix_is_a_share_of_the_trace_without_its_eos() -> None:
    plan = plans_of(HALF, trace(scored=True), num_off=-1)
    assert plan.num_samples == 0
    assert len(plan.prefixes) == 4
    assert decode(plan.prefixes[0].ids) == "abcde"
    assert plan.prefixes[0].logprobs == trace(scored=True).logprobs[:5]


class Watched:
    """A scripted engine that keeps the requests it got."""

    def __init__(self, texts: list[str]) -> None:
        self.engine = ScriptedEngine(TOKENIZER, texts)
        self.requests: list[Request] = []

    def generate(self, requests: Any, sampling: SamplingParams) -> Any:
        self.requests += requests
        return self.engine.generate(requests, sampling)


def guided_group(schedule: PrefixSchedule, given: EncodedTrace, engine: Any) -> RolloutGroup:
    plans = plan_prefixes(
        [prompt("a")], {"a": [given]}, schedule, num_generations=4, num_off=1, seed=0, step=0
    )
    groups = collect_groups(
        engine,
        [prompt("a")],
        SamplingParams(max_tokens=12),
        num_samples=[plan.num_samples for plan in plans],
        prefixes=[plan.prefixes for plan in plans],
        decode=decode,
        seed=0,
    )
    return append_whole(groups, plans, num_generations=4)[0]


def test_half_a_trace_gives_the_right_mask_and_eos_placement() -> None:
    engine = Watched(["own"])
    group = guided_group(HALF, trace(scored=True), engine)
    assert [request.num_samples for request in engine.requests] == [3, 1]
    assert decode(engine.requests[1].prefix_ids) == "abcde"
    assert engine.requests[1].max_tokens == 12 - 5
    assert [rollout.source for rollout in group.rollouts] == ["policy"] * 3 + ["demonstration"]
    guided = group.rollouts[-1]
    assert guided.text == "abcdeown"
    assert list(guided.off_policy) == [True] * 5 + [False] * 4
    assert list(guided.mask) == [True] * 9
    assert guided.ids[-1] == EOS
    assert EOS not in guided.ids[:-1]
    assert all(map(math.isnan, guided.sampling_logprobs[:5]))
    assert not any(map(math.isnan, guided.sampling_logprobs[5:]))
    assert list(guided.recorded_logprobs[:5]) == [-0.125 * place for place in range(5)]
    assert all(map(math.isnan, guided.recorded_logprobs[5:]))
    assert group.rollouts[0].recorded_logprobs == ()


def test_whole_traces_never_reach_the_engine() -> None:
    engine = Watched(["own"])
    group = guided_group(PrefixSchedule(), trace(), engine)
    assert [(r.num_samples, r.prefix_ids) for r in engine.requests] == [(3, ())]
    assert group.rollouts[-1].ids == trace().ids


def test_prefix_and_continuation_keep_to_the_limit_together() -> None:
    guided = guided_group(HALF, trace(), Watched(["x" * 50])).rollouts[-1]
    assert (len(guided.ids), guided.finish_reason) == (12, "length")


def test_a_real_engine_continues_the_prefix() -> None:
    """Greedy: the continuation is what the model says after prompt and prefix as one prompt."""
    model = tiny_model(TOKENIZER)
    engine = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    prefix = TracePrefix(ids=trace().ids[:5])
    greedy = SamplingParams(temperature=0.0, max_tokens=12)
    group = collect_groups(
        engine, [prompt("a")], greedy, num_samples=1, prefixes=[[prefix]], decode=decode, seed=0
    )[0]
    guided = group.rollouts[1]
    alone = engine.generate(
        [Request(prompt_ids=(*prompt("a").ids, *prefix.ids), max_tokens=7)], greedy
    )[0][0]
    assert tuple(guided.ids) == (*prefix.ids, *alone.ids)
    assert len(guided.ids) <= 12
    assert list(guided.sampling_logprobs[5:]) == pytest.approx(alone.sampling_logprobs, abs=1e-5)


def test_ordinary_samples_do_not_depend_on_the_guided_row() -> None:
    model = tiny_model(TOKENIZER)
    engine = TransformersEngine(model, TOKENIZER, eos_token_ids=[EOS])
    sampling = SamplingParams(max_tokens=8)
    plain = collect_groups(engine, [prompt("a")], sampling, num_samples=2, seed=3)[0]
    prefixes = [[TracePrefix(ids=trace().ids[:4])]]
    mixed = collect_groups(
        engine,
        [prompt("a")],
        sampling,
        num_samples=[2],
        prefixes=prefixes,
        decode=decode,
        seed=3,
    )[0]
    assert [r.ids for r in mixed.rollouts[:2]] == [r.ids for r in plain.rollouts]


def test_misuse_is_said() -> None:
    engine = ScriptedEngine(TOKENIZER, ["a"])
    long = TracePrefix(ids=tuple(TOKENIZER.encode("x" * 12)))
    with pytest.raises(EngineError, match="need decode"):
        collect_groups(
            engine, [prompt("a")], SamplingParams(), num_samples=1, prefixes=[[long]], seed=0
        )
    with pytest.raises(EngineError, match="max_tokens=0; expected 1 or more"):
        collect_groups(
            engine,
            [prompt("a")],
            SamplingParams(max_tokens=12),
            num_samples=1,
            prefixes=[[long]],
            decode=decode,
            seed=0,
        )
