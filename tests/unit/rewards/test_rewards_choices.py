"""The choice among labels, under every answer format."""

from __future__ import annotations

import pytest

from workings.grading.grader import Grader
from workings.rewards.r1_zero import AnswerFormat, read_response
from workings.rewards.reward import build_reward, grade_groups
from workings.types import Problem, Prompt, Rollout, RolloutGroup


@pytest.mark.parametrize(
    ("response", "answer_format", "format_right", "answer"),
    [
        (r"\boxed{C}", "question_only", True, "C"),
        (r"\boxed{\text{(C)}}", "question_only", True, "C"),
        (r"\boxed{C. It falls}", "question_only", True, "C"),
        ("So it falls.\nANSWER: C", "question_only", True, "C"),
        ("The correct answer is (C).", "question_only", True, "C"),
        (r"The sum is \boxed{12}, hence ANSWER: C", "question_only", True, "C"),
        (r"The sum is \boxed{12}.", "question_only", True, "12"),
        (r"ANSWER: B, I mean \boxed{C}", "question_only", True, "C"),
        ("I think it is C", "question_only", False, None),
        ("ANSWER: F", "question_only", False, None),
        ("<think> x </think> ANSWER: C", "think_boxed", True, "C"),
        ("<think> ANSWER: C", "think_boxed", False, None),
        ("x </think> <answer>C</answer>", "r1_zero", True, "C"),
        ("x </think> <answer>ANSWER: C</answer>", "r1_zero", True, "C"),
        ("x </think> <answer>(C) It falls</answer>", "r1_zero", True, "C"),
        (r"x </think> <answer>\boxed{C}</answer>", "r1_zero", True, "C"),
        ("ANSWER: C", "r1_zero", False, None),
    ],
)
def test_a_choice_is_a_label_in_the_form_or_a_statement(
    response: str, answer_format: AnswerFormat, format_right: bool, answer: str | None
) -> None:
    found = read_response(response, answer_format, "strict", labels="ABCD")
    assert (found.format_right, found.answer) == (format_right, answer)


def test_a_statement_is_no_answer_to_a_free_question() -> None:
    assert read_response("ANSWER: C", "question_only", "strict").answer is None
    assert read_response(r"\boxed{(C)}", "question_only", "strict").answer == "(C)"


def test_four_classes_of_a_choice() -> None:
    found = read_response("Surely ANSWER: C", "r1_zero", "four_class", labels="ABCD")
    assert (found.format_right, found.answer) == (False, "C")


def test_groups_carry_the_labels_of_their_question() -> None:
    with Grader() as grader:
        reward = build_reward("question_only", grader=grader)
        for extra, right in (({"choice_labels": "ABCD"}, True), ({}, False)):
            problem = Problem(id="p", question="q", answer="C", extra=extra)
            text = "ANSWER: C"
            rollout = Rollout(
                ids=(1,),
                sampling_logprobs=(-1.0,),
                kept_mass=(1.0,),
                mask=(True,),
                off_policy=(False,),
                text=text,
                finish_reason="eos",
                weight_version=0,
            )
            prompt = Prompt(problem=problem, ids=(1,), text="q")
            (group,) = grade_groups([RolloutGroup(prompt=prompt, rollouts=(rollout,))], reward)
            assert group.rollouts[0].reward == float(right)
