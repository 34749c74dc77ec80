"""From groups to rewarded groups: components, weights, bad golds, user functions, metrics."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from workings.errors import ConfigError, GradingError
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.rewards.components import Component, completion_text
from workings.rewards.four_classes import (
    CATEGORIES,
    category,
    category_of,
    count_categories,
)
from workings.rewards.reward import Reward, build_reward, grade_groups
from workings.rewards.reward_metrics import check_grader, reward_metrics
from workings.types import FinishReason, Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

TAGGED = "work<end_working_out><SOLUTION>{}</SOLUTION>"


def T(answer: str) -> str:
    return f"work </think> <answer>{answer}</answer>"


def rollout(text: str, *, num_tokens: int = 4, finish_reason: FinishReason = "eos") -> Rollout:
    return Rollout(
        ids=tuple(range(num_tokens)),
        sampling_logprobs=(0.0,) * num_tokens,
        kept_mass=(1.0,) * num_tokens,
        mask=(True,) * num_tokens,
        off_policy=(False,) * num_tokens,
        text=text,
        finish_reason=finish_reason,
        weight_version=0,
    )


def group(answer: str, texts: Sequence[str], **extra: object) -> RolloutGroup:
    problem = Problem(id=f"toy/{answer}", question="?", answer=answer, extra=extra)
    prompt = Prompt(problem=problem, ids=(1, 2), text=f"prompt {answer}")
    return RolloutGroup(prompt=prompt, rollouts=tuple(map(rollout, texts)))


def rewards_of(groups: Sequence[RolloutGroup]) -> list[list[float | None]]:
    return [[one.reward for one in group.rollouts] for group in groups]


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as one:
        yield one


def test_r1_zero_fills_reward_components_and_grade() -> None:
    groups = [group("7", [T("7"), T("8"), "7"]), group("9", [T(r"\boxed{9}"), T("")])]
    graded = grade_groups(groups, build_reward("r1_zero"))
    assert rewards_of(graded) == [[1.0, 0.0, 0.0], [1.0, 0.0]]
    first, second, third = graded[0].rollouts
    assert first.components == {"format": 1.0, "answer": 1.0}
    assert second.components == {"format": 1.0, "answer": 0.0}
    assert third.components == {"format": 0.0, "answer": 0.0}
    assert first.grade is not None
    assert (first.grade.verdict, first.grade.extracted) == (Verdict.EQUAL, "7")
    assert third.grade is not None
    assert third.grade.verdict is Verdict.NO_ANSWER
    assert groups[0].rollouts[0].reward is None  # records are replaced, not edited
    assert replace(first, reward=None, components={}, grade=None) == groups[0].rollouts[0]


def test_a_bad_gold_gives_none_and_is_counted() -> None:
    groups = [
        group("", [T(""), T("7")]),
        group("7", [T("7"), T("8")]),
        group(r"\frac{1}{", [T("1")]),
    ]
    graded = grade_groups(groups, build_reward("r1_zero"))
    assert rewards_of(graded) == [[None, None], [1.0, 0.0], [None]]
    metrics = reward_metrics(graded)
    assert metrics["grader/bad_gold"] == 3.0
    assert metrics["reward"] == 0.5
    assert graded[0].rollouts[0].components == {}


def test_one_and_the_same_group_twice_keeps_its_place() -> None:
    same = group("7", [T("7"), T("8")])
    graded = grade_groups([same, group("", ["x"]), same], build_reward("r1_zero"))
    assert rewards_of(graded) == [[1.0, 0.0], [None], [1.0, 0.0]]
    assert grade_groups([], build_reward("r1_zero")) == []


def test_expressions_are_graded_in_one_batch_and_once_per_pair(grader: Grader) -> None:
    groups = [group(r"2\sqrt{3}", [T(r"\sqrt{12}")] * 3 + [T(r"\sqrt{13}")])]
    graded = grade_groups(groups, build_reward("r1_zero", grader=grader))
    assert rewards_of(graded) == [[1.0, 1.0, 1.0, 0.0]]
    grades = [one.grade for one in graded[0].rollouts]
    assert grades[0] is grades[1] is grades[2]
    assert [grade.tier for grade in grades if grade] == ["expression"] * 4


def test_a_lenient_grader_is_no_reward() -> None:
    with Grader(GradingPolicy(extraction="lenient")) as lenient:
        for name in ("r1_zero", "question_only", "tags"):
            with pytest.raises(ConfigError, match="extraction policy 'lenient'"):
                build_reward(name, grader=lenient)


def test_strict_compat_off_leaves_the_verdict_to_the_grader(grader: Grader) -> None:
    groups = [group("1/2", [T("2/4"), T("0.5"), T("3/4")])]
    loose = build_reward("r1_zero", grader=grader, strict_compat=False)
    assert rewards_of(grade_groups(groups, loose)) == [[1.0, 1.0, 0.0]]
    assert rewards_of(grade_groups(groups, build_reward("r1_zero"))) == [[0.0, 1.0, 0.0]]
    assert loose.settings["strict_compat"] is False


def test_four_class_mode_pays_format_times_answer() -> None:
    graded = grade_groups(
        [group("18", [T("18"), T("19"), r"\boxed{18}", "no"])],
        build_reward("r1_zero", mode="four_class"),
    )
    assert rewards_of(graded) == [[1.0, 0.0, 0.0, 0.0]]
    assert [category(one) for one in graded[0].rollouts] == [
        CATEGORIES[0], CATEGORIES[1], CATEGORIES[3], CATEGORIES[2]
    ]  # fmt: skip
    assert count_categories(graded[0].rollouts) == dict.fromkeys(CATEGORIES, 1)


def test_category_of_two_numbers() -> None:
    found = [category_of(f, a) for f, a in ((1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 1.0))]
    assert found == list(CATEGORIES)


def test_question_only_reads_boxes() -> None:
    graded = grade_groups([group("18", [r"\boxed{18}", T("18")])], build_reward("question_only"))
    assert rewards_of(graded) == [[1.0, 0.0]]


def test_weights_pay_the_format_where_asked() -> None:
    reward = build_reward("r1_zero", weights={"format": 0.25, "answer": 2.0})
    graded = grade_groups([group("7", [T("7"), T("8"), "x"])], reward)
    assert rewards_of(graded) == [[2.25, 0.25, 0.0]]


def test_tag_rewards_sum_with_their_weights(grader: Grader) -> None:
    groups = [group("34", [TAGGED.format("34"), TAGGED.format("68/2"), "34"])]
    plain = grade_groups(groups, build_reward("tags"))
    assert rewards_of(plain) == [[12.5, 1.0, -6.5]]
    assert plain[0].rollouts[0].grade is None
    assert plain[0].rollouts[2].components == {
        "match_format_exactly": 0.0,
        "match_format_approximately": -3.0,
        "check_answer": -2.0,
        "check_numbers": -1.5,
    }
    weighted = build_reward("tags", weights={"check_numbers": 0.0}, use_format_exact=False)
    assert rewards_of(grade_groups(groups, weighted)) == [[6.5, -0.5, -5.0]]
    judged = grade_groups(groups, build_reward("tags", grader=grader))
    assert [category(one) for one in judged[0].rollouts] == [
        CATEGORIES[0], CATEGORIES[0], CATEGORIES[2]
    ]  # fmt: skip
    assert [category(one) for one in plain[0].rollouts] == [
        CATEGORIES[0], CATEGORIES[1], CATEGORIES[2]
    ]  # fmt: skip
    assert rewards_of(grade_groups([group(" ", ["x"])], build_reward("tags"))) == [[None]]


def test_overlong_shaping_and_length_penalty_are_components_of_their_own() -> None:
    base = group("7", [T("7"), T("8")])
    long = replace(base, rollouts=tuple(rollout(one.text, num_tokens=75) for one in base.rollouts))
    reward = build_reward("r1_zero", max_tokens=100, overlong_buffer=50)
    graded = grade_groups([long], reward)
    assert rewards_of(graded) == [[0.5, -0.5]]
    assert graded[0].rollouts[0].components["overlong"] == -0.5
    doubled = build_reward("r1_zero", max_tokens=100, overlong_buffer=50, weights={"overlong": 2.0})
    assert rewards_of(grade_groups([long], doubled)) == [[0.0, -1.0]]
    penalised = build_reward(
        "r1_zero", max_tokens=100, length_penalty_weight=0.2, penalise_only_correct=True
    )
    graded = grade_groups([long], penalised)
    assert rewards_of(graded) == [[pytest.approx(0.85), 0.0]]
    assert graded[0].rollouts[1].components["length_penalty"] == 0.0


def test_user_functions_see_columns_and_may_skip_rows() -> None:
    seen: dict[str, object] = {}

    def bonus(
        prompts: list[str], completions: list[str], answer: list[str], level: list[object]
    ) -> list[float | None]:
        seen.update(prompts=prompts, answer=answer, level=level)
        return [None if one is None else 0.1 * float(str(one)) for one in level]

    def everything(completions: list[str], **columns: object) -> list[float]:
        seen["columns"] = sorted(columns)
        return [0.0] * len(completions)

    reward = build_reward(
        "r1_zero",
        weights={"bonus": 10.0},
        extra_components=[
            Component(name="bonus", function=bonus),
            Component(name="everything", function=everything, weight=3.0),
        ],
    )
    groups = [group("7", [T("7"), T("8")], level=3), group("9", [T("9")], topic="sums")]
    graded = grade_groups(groups, reward)
    assert rewards_of(graded) == [[pytest.approx(4.0), pytest.approx(3.0)], [1.0]]
    assert "bonus" not in graded[1].rollouts[0].components
    assert seen["prompts"] == ["prompt 7", "prompt 7", "prompt 9"]
    assert (seen["answer"], seen["level"]) == (["7", "7", "9"], [3, 3, None])
    assert seen["columns"] == ["answer", "completion_ids", "level", "prompts", "topic"]


def test_a_row_that_every_component_skips_has_no_reward() -> None:
    reward = Reward(
        settings={},
        components=(Component(name="never", function=lambda completions, **_: [None]),),
        gold_fault=lambda gold: None,
    )
    assert rewards_of(grade_groups([group("7", ["x"])], reward)) == [[None]]


@pytest.mark.parametrize("value", [math.nan, math.inf, "good", [1.0]])
def test_a_reward_that_is_no_finite_number_names_function_and_row(value: object) -> None:
    component = Component(name="mine", function=lambda completions, **_: [0.0, value])
    reward = build_reward("r1_zero", extra_components=[component])
    with pytest.raises(
        GradingError, match=r"reward function 'mine' returned .* for row 1"
    ) as caught:
        grade_groups([group("7", [T("7"), T("8")])], reward)
    assert caught.value.hint == "return None to leave a row out"


def test_a_function_that_raises_or_returns_too_few_values_is_named() -> None:
    def broken(**columns: object) -> list[float]:
        raise ZeroDivisionError("by zero")

    for function, message in (
        (broken, "reward function 'mine' raised ZeroDivisionError: by zero"),
        (lambda completions, **_: [], "reward function 'mine' returned 0 values for 1 completions"),
    ):
        reward = build_reward(
            "r1_zero", extra_components=[Component(name="mine", function=function)]
        )
        with pytest.raises(GradingError, match=message):
            grade_groups([group("7", [T("7")])], reward)


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown reward 'r1-zero'; did you mean 'r1_zero'"):
        build_reward("r1-zero")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown reward mode 'loose'"):
        build_reward("r1_zero", mode="loose")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match="unknown reward component 'anser'; did you mean 'answer'"
    ):
        build_reward("r1_zero", weights={"anser": 1.0})
    with pytest.raises(ConfigError, match="unknown reward component 'answer'"):
        build_reward("tags", weights={"answer": 1.0})
    with pytest.raises(ConfigError, match="needs the limit on sampled tokens"):
        build_reward("r1_zero", overlong_buffer=10)
    with pytest.raises(ConfigError, match="overlong_buffer=10 with max_tokens=5"):
        build_reward("r1_zero", overlong_buffer=10, max_tokens=5)
    clash = Component(name="format", function=lambda **_: [])
    with pytest.raises(ConfigError, match="two reward components are called 'format'"):
        build_reward("r1_zero", extra_components=[clash])


def test_metrics_against_plain_statistics() -> None:
    groups = [group("7", [T("7"), T("8"), "x", T("7")]), group("9", [T("9"), T("9")])]
    metrics = reward_metrics(grade_groups(groups, build_reward("r1_zero")))
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    formats = [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    assert metrics["reward"] == pytest.approx(statistics.fmean(rewards))
    assert metrics["answer_reward"] == pytest.approx(statistics.fmean(rewards))
    assert metrics["format_reward"] == pytest.approx(statistics.fmean(formats))
    assert metrics["reward_std"] == pytest.approx(statistics.stdev(rewards[:4]) / 2)
    assert metrics["frac_reward_zero_std"] == 0.5
    assert metrics["rewards/format/mean"] == pytest.approx(statistics.fmean(formats))
    assert metrics["rewards/format/std"] == pytest.approx(statistics.stdev(formats))
    assert metrics["grader/no_answer"] == 1.0
    for name in ("timeouts", "bad_gold", "errors", "undecided", "refused"):
        assert metrics[f"grader/{name}"] == 0.0


def test_metrics_of_nothing_graded_leave_the_means_out() -> None:
    metrics = reward_metrics(grade_groups([group("", ["x"])], build_reward("r1_zero")))
    assert "reward" not in metrics
    assert metrics["grader/bad_gold"] == 1.0


def test_the_run_stops_above_one_percent_of_grader_errors() -> None:
    good, bad = Grade(verdict=Verdict.EQUAL), Grade(verdict=Verdict.INTERNAL_ERROR, extracted="x")
    base = group("7", ["x"] * 100)

    def with_errors(number: int) -> RolloutGroup:
        grades = [bad] * number + [good] * (100 - number)
        return replace(
            base,
            rollouts=tuple(
                replace(one, grade=grade) for one, grade in zip(base.rollouts, grades, strict=True)
            ),
        )

    check_grader([with_errors(1)])
    check_grader([base])
    with pytest.raises(GradingError, match="2 of 100 grades are errors of the grader"):
        check_grader([with_errors(2)])


def test_completion_text_of_every_form() -> None:
    assert completion_text("34") == "34"
    assert completion_text([{"role": "assistant", "content": "34"}]) == "34"
    assert completion_text([{"role": "assistant"}]) == ""


def test_the_room_imports_no_torch_and_no_sympy() -> None:
    code = (
        "import sys, workings.rewards.reward, workings.rewards.countdown; "
        "print([m for m in ('torch', 'sympy', 'math_verify', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
