"""Sampling, storing, grading and summing up, with an engine that says what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from workings.errors import DataError, EngineError
from workings.evaluation import evaluate as module
from workings.evaluation.evaluate import RESPONSES_FILE, evaluate, regrade, reward_equality
from workings.evaluation.metrics import same_text
from workings.evaluation.reports import read_results, write_results
from workings.rewards.reward import build_reward
from workings.rollout.engine import Request, SamplingParams
from workings.tracking.rollouts import read_groups
from workings.types import Problem, Prompt, Sample

GREEDY = SamplingParams(temperature=0.0, max_tokens=16, stop=("</answer>",))


class Saying:
    """An engine that answers request i with `texts[i]`, one text per sample."""

    weight_version = 7

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._texts = texts
        self.seen: list[tuple[list[Request], SamplingParams]] = []

    def submit(self, requests: Sequence[Request], sampling: SamplingParams) -> Any:
        self.seen.append((list(requests), sampling))
        return list(requests)

    def collect(self, pending: Any) -> list[list[Sample]]:
        return [
            [self._sample(text) for text in texts[: request.num_samples]]
            for request, texts in zip(pending, self._texts, strict=True)
        ]

    def generate(self, requests: Sequence[Request], sampling: SamplingParams) -> list[list[Sample]]:
        return self.collect(self.submit(requests, sampling))

    def load_weights(self, version: int, tensors: Any) -> None:
        raise EngineError("an engine of canned text has no weights")

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...

    def _sample(self, text: str) -> Sample:
        ids = tuple(ord(letter) for letter in text)
        return Sample(
            ids=ids,
            sampling_logprobs=(-0.5,) * len(ids),
            kept_mass=(1.0,) * len(ids),
            text=text,
            finish_reason="stop" if text.endswith("</answer>") else "length",
            weight_version=self.weight_version,
        )


def answer(text: str) -> str:
    return f"so </think> <answer>{text}</answer>"


def prompts(num_prompts: int) -> list[Prompt]:
    return [
        Prompt(
            problem=Problem(id=f"sums/{index}", question=f"{index} + 1?", answer=str(index + 1)),
            ids=(5, index),
            text=f"Q: {index} + 1? <think>",
        )
        for index in range(num_prompts)
    ]


def test_one_pass_from_prompts_to_intervals(tmp_path: Path) -> None:
    engine = Saying([[answer("1")], [answer("9")], ["no end in sight"], ["so the answer is 4"]])
    result = evaluate(
        engine,
        prompts(4),
        build_reward("r1_zero"),
        GREEDY,
        num_samples=1,
        seed=0,
        dataset="sums",
        folder=tmp_path,
    )
    ((requests, sampling),) = engine.seen
    assert sampling == GREEDY
    assert [request.prompt_ids for request in requests] == [(5, index) for index in range(4)]
    assert len({request.seed for request in requests}) == 4
    assert (result.accuracy.value, result.accuracy.interval) == (0.25, "wilson")
    assert result.metrics["format_reward"] == 0.5
    assert result.metrics["truncation_rate"] == 0.5
    assert result.metrics["category_2_format1_answer0"] == 0.25
    assert result.seconds > 0
    rows = read_results(write_results(tmp_path, result, settings={"seed": 0}))
    assert [row["verdict"] for row in rows][:2] == ["equal", "different"]
    assert [row["finish_reason"] for row in rows] == ["stop", "stop", "length", "length"]
    assert all(rollout.weight_version == 7 for g in result.groups for rollout in g.rollouts)


def test_strict_and_four_class_stand_side_by_side() -> None:
    texts = [["so \\boxed{1}"], [answer("2")], ["nothing"]]
    arguments: dict[str, Any] = {"num_samples": 1, "seed": 0, "dataset": "sums"}
    strict = evaluate(Saying(texts), prompts(3), build_reward("r1_zero"), GREEDY, **arguments)
    reward = build_reward("r1_zero", mode="four_class")
    lenient = evaluate(Saying(texts), prompts(3), reward, GREEDY, **arguments)
    assert strict.metrics["answer_accuracy"] == pytest.approx(1 / 3)
    assert lenient.metrics["answer_accuracy"] == pytest.approx(2 / 3)
    assert strict.metrics["accuracy"] == lenient.metrics["accuracy"] == pytest.approx(1 / 3)
    assert lenient.metrics["category_4_format0_answer1"] == pytest.approx(1 / 3)


def test_responses_are_stored_before_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(groups: Any, reward: Any) -> Any:
        raise RuntimeError("the grader broke")

    monkeypatch.setattr(module, "grade_groups", fail)
    with pytest.raises(RuntimeError, match="the grader broke"):
        evaluate(
            Saying([[answer("1")]]),
            prompts(1),
            build_reward("r1_zero"),
            GREEDY,
            num_samples=1,
            seed=0,
            dataset="sums",
            folder=tmp_path,
        )
    (group,) = read_groups(tmp_path / "sums" / RESPONSES_FILE)
    assert group.rollouts[0].text == answer("1")
    assert group.rollouts[0].reward is None


def test_stored_responses_are_graded_again_without_an_engine(tmp_path: Path) -> None:
    texts = [[answer("1"), answer("8")], ["so \\boxed{2}", answer("2")]]
    reward = build_reward("r1_zero")
    first = evaluate(
        Saying(texts),
        prompts(2),
        reward,
        GREEDY,
        num_samples=2,
        seed=0,
        dataset="sums",
        folder=tmp_path,
    )
    again = regrade(tmp_path, reward, dataset="sums", seed=0)
    assert again.metrics == first.metrics
    assert again.estimates == first.estimates
    assert [[r.reward for r in g.rollouts] for g in again.groups] == [[1.0, 0.0], [0.0, 1.0]]
    lenient = build_reward("r1_zero", mode="four_class")
    other = regrade(tmp_path, lenient, dataset="sums", seed=0)
    assert other.metrics["answer_accuracy"] == 0.75


def test_the_grader_of_the_reward_says_which_answers_vote_together() -> None:
    equal = reward_equality(build_reward("r1_zero"))
    assert equal("\\frac{1}{2}", "0.5")
    assert equal("7", " 7")
    assert not equal("0.5", "0.6")
    texts = [[answer("0.5"), answer("\\frac{1}{2}"), answer("9")]]
    problem = Problem(id="half", question="1 / 2?", answer="1/2")
    result = evaluate(
        Saying(texts),
        [Prompt(problem=problem, ids=(1,), text="Q")],
        build_reward("r1_zero"),
        GREEDY,
        num_samples=3,
        seed=0,
        dataset="halves",
    )
    assert result.estimates["maj@3"].value == 1.0


def test_tag_rewards_vote_by_text() -> None:
    assert reward_equality(build_reward("tags")) is same_text


def test_nothing_to_evaluate_on_is_an_error() -> None:
    with pytest.raises(DataError, match="no prompt to evaluate on in 'sums'"):
        evaluate(
            Saying([]),
            [],
            build_reward("r1_zero"),
            GREEDY,
            num_samples=1,
            seed=0,
            dataset="sums",
        )
