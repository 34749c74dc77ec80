"""What is checked before the first step of a run with teacher traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaConfig

from tiny import tiny_tokenizer
from workings.data.encoding import encode_prompts
from workings.data.templates import PromptTemplate
from workings.data.traces import EncodedTrace, encode_traces
from workings.errors import ConfigError
from workings.rewards.four_classes import answer_right
from workings.training.preflight import preflight
from workings.types import Demonstration, Problem, Prompt, Rollout, RolloutGroup

TOKENIZER = tiny_tokenizer()
EOS = TOKENIZER.eos_token_id
OPEN = PromptTemplate(name="open", before="Q: ", after="\n<think>\n")
PLAIN = PromptTemplate(name="plain", before="Q: ", after="\nA: ")
CONFIG = LlamaConfig(max_position_embeddings=256, rope_theta=40000.0)


def prompts(template: PromptTemplate = OPEN) -> tuple[Prompt, ...]:
    problems = [Problem(id=name, question="2+2?", answer="4") for name in "abcd"]
    return encode_prompts(problems, template, TOKENIZER).items


def traces(
    response: str = "<think>\n2+2\n</think>4", template: PromptTemplate = OPEN
) -> dict[str, tuple[EncodedTrace, ...]]:
    rows = {
        name: (Demonstration(id=f"{name}/trace0", question="2+2?", response=response),)
        for name in "abc"
    }
    return dict(encode_traces(prompts(template), rows, template, TOKENIZER).by_problem)


def grade(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
    """Right where the text behind the thought is the gold."""

    def graded(rollout: Rollout, gold: str) -> Rollout:
        right = float(rollout.text.rpartition("</think>")[2] == gold)
        return replace(rollout, reward=right, components={"answer": right})

    return [
        replace(g, rollouts=tuple(graded(rollout, g.problem.answer) for rollout in g.rollouts))
        for g in groups
    ]


def check(
    asked: tuple[Prompt, ...] | None = None,
    given: dict[str, tuple[EncodedTrace, ...]] | None = None,
    **settings: Any,
) -> list[str]:
    defaults: dict[str, Any] = {
        "template": OPEN,
        "model_config": CONFIG,
        "eos_token_ids": [EOS],
        "max_tokens": 64,
        "grade": grade,
        "is_right": answer_right,
        "expected_ending": "<think>\n",
    }
    return preflight(
        prompts() if asked is None else asked,
        traces() if given is None else given,
        **{**defaults, **settings},
    )


def test_a_run_that_fits_is_reported_line_by_line() -> None:
    length = len(prompts()[0].ids)
    longest = len(traces()["a"][0].ids)
    assert check() == [
        "preflight: traces: 3 for 3 of 4 prompts; the others are sampled",
        "preflight: template: every prompt ends with '<think>\\n'",
        "preflight: thought: opened at most once in prompt and trace",
        "preflight: EOS: the last id of every trace, and nowhere before",
        f"preflight: lengths: the longest trace has {longest} tokens, a completion at most 64",
        f"preflight: positions: {length} prompt + 64 response tokens, of the model's 256, rotary "
        "base 40000",
        "preflight: teacher: 3 of 3 teacher rows are graded right (100.0%)",
    ]


def test_pitfall_5_a_template_that_ends_elsewhere() -> None:
    with pytest.raises(ConfigError, match=r"4 of 4 prompts do not end with '<think>\\n'") as err:
        check(prompts(PLAIN), traces(template=PLAIN), template=PLAIN)
    assert "model.chat_template" in str(err.value.hint)
    lines = check(prompts(PLAIN), traces(template=PLAIN), template=PLAIN, expected_ending=None)
    assert "every prompt ends with 'Q: 2+2?\\nA: '" in lines[1]
    mixed = (*prompts()[:2], *prompts(PLAIN)[2:])
    with pytest.raises(ConfigError, match="2 of 4 prompts do not end"):
        check(mixed, traces(), expected_ending=None)


def test_pitfall_5_a_thought_that_is_opened_twice_or_never() -> None:
    doubled = {
        name: tuple(replace(trace, text=f"<think>\n{trace.text}") for trace in rows)
        for name, rows in traces().items()
    }
    with pytest.raises(ConfigError, match=r"3 of 3 traces open the thought a second time") as err:
        check(given=doubled)
    assert "take <think> out of" in str(err.value.hint)
    twice = replace(OPEN, after="\n<think>\n<think>\n")
    with pytest.raises(ConfigError, match="a second time"):
        check(prompts(twice), traces(template=twice), template=twice)
    unopened = traces("2+2\n</think>4", PLAIN)
    with pytest.raises(ConfigError, match="close a thought that neither they nor the prompt open"):
        check(prompts(PLAIN), unopened, template=PLAIN, expected_ending=None)


def test_pitfall_5_eos_is_missing_or_stands_inside() -> None:
    cut = {name: tuple(replace(t, ids=t.ids[:-1]) for t in rows) for name, rows in traces().items()}
    with pytest.raises(ConfigError, match=r"3 of 3 traces do not end with EOS .*\(first: a/trace0"):
        check(given=cut)
    inside = traces()
    inside["b"] = (replace(inside["b"][0], ids=(EOS, *inside["b"][0].ids)),)
    with pytest.raises(ConfigError, match="1 of 3 traces hold EOS before their end"):
        check(given=inside)
    with pytest.raises(ConfigError, match="3 of 3 traces do not end with EOS"):
        check(eos_token_ids=[TOKENIZER.bos_token_id])


def test_pitfall_5_positions_and_lengths() -> None:
    with pytest.raises(ConfigError, match=r"are needed, the model has 256, rotary base") as caught:
        check(max_tokens=256)
    assert "rope_theta by the same factor" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"the longest trace has .* a completion at most 8"):
        check(max_tokens=8)
    short_base = LlamaConfig(max_position_embeddings=16384, rope_theta=10000.0)
    assert (
        "a rotary base of 10000 is usual for 4096"
        in check(model_config=short_base, max_tokens=8192)[5]
    )
    assert "states no limit" in check(model_config=SimpleNamespace())[5]
    old = SimpleNamespace(max_position_embeddings=256, rope_theta=500000.0)
    assert "rotary base 500000" in check(model_config=old)[5]


def test_a_teacher_whom_the_reward_finds_wrong() -> None:
    wrong = {**traces(), "b": traces("<think>\n2+2\n</think>5")["b"]}
    with pytest.raises(ConfigError, match=r"2 of 3 teacher rows are graded right \(66.7%\)") as err:
        check(given=wrong)
    assert "b/trace0: gold '4', reward 0, ends with '2+2\\n</think>5'" in str(err.value)
    assert "graded right (66.7%)" in check(given=wrong, min_right=0.5)[-1]


def test_only_a_seeded_part_is_graded_where_there_are_many() -> None:
    sizes: list[int] = []

    def counting(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        sizes.append(len(groups))
        return grade(groups)

    check(grade=counting, max_graded=2)
    assert sizes == [2]


def test_a_gold_that_cannot_be_used_is_said() -> None:
    def partly(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        first, *others = grade(groups)
        rows = tuple(replace(row, reward=None) for row in first.rollouts)
        return [replace(first, rollouts=rows), *others]

    assert check(grade=partly)[-1].endswith("(100.0%); 1 have a gold that cannot be used")


def test_all_that_fails_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="the run cannot learn from these traces") as caught:
        check(max_tokens=8, eos_token_ids=[0])
    assert "EOS:" in caught.value.message
    assert "lengths:" in caught.value.message
    with pytest.raises(ConfigError, match="none of 4 prompts has a trace"):
        check(given={})
