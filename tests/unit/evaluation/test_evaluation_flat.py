"""Flat rows and whole-run files: what they say, and that our own tools read them back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.artefact import artefact, artefact_folder, write_artefact
from workings.evaluation.compare import compare_folders, read_marks
from workings.evaluation.flat import (
    accuracy_by_source,
    accuracy_table,
    after_thought,
    decoded_rows,
    flat_rows,
    graded_parts,
    write_rows,
)
from workings.evaluation.reports import read_results
from workings.rewards.reward import build_reward, grade_groups
from workings.types import Problem, Prompt, Rollout, RolloutGroup

NOW = datetime(2026, 2, 3, 4, 5, 6)


def group(number: int, *texts: str, source: str = "math", question: str = "", prompt: str = "Q"):
    problem = Problem(
        id=f"{source}/{number}",
        question=question or f"{number}?",
        answer=str(number),
        subject="sums" if number % 2 else None,
        source=source,
    )
    rollouts = tuple(
        Rollout(
            ids=(1,),
            sampling_logprobs=(-1.0,),
            kept_mass=(1.0,),
            mask=(True,),
            off_policy=(False,),
            text=text,
            finish_reason="eos",
            weight_version=0,
        )
        for text in texts
    )
    return RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text=prompt), rollouts=rollouts)


@pytest.mark.parametrize(
    ("prompt", "response", "graded"),
    [
        ("Q <think>\n", "I \\boxed{1} </think> \\boxed{2}", " \\boxed{2}"),
        ("Q <think>\n", "I \\boxed{1}", None),
        ("Q", "<think> \\boxed{1}", None),
        ("Q", "<think> a </think> b <think> c", None),
        ("Q", "a </think> b </think> c", " c"),
        ("Q", "\\boxed{1}", "\\boxed{1}"),
    ],
)
def test_only_what_follows_a_finished_thought_is_graded(prompt, response, graded) -> None:
    assert after_thought(prompt, response) == graded


def test_parts_keep_their_groups_and_say_what_was_unfinished() -> None:
    groups = [group(1, "x </think> \\boxed{1}", "x \\boxed{1}", prompt="Q <think>")]
    parts, finished = graded_parts(groups)
    assert [one.text for one in parts[0].rollouts] == [" \\boxed{1}", ""]
    assert finished == [[True, False]]


def test_copies_of_a_question_are_its_samples() -> None:
    groups = [group(n, "", source="aime", question="same?") for n in range(4)]
    groups += [group(7, "", source="math"), group(8, "", source="math")]
    correct = [[True], [False], [False], [False], [True], [None]]
    found = accuracy_by_source(groups, correct)
    assert (found["aime"].value, found["aime"].num_problems, found["aime"].num_samples) == (
        0.25,
        1,
        4,
    )
    assert (found["math"].value, found["math"].num_problems) == (1.0, 1)
    assert "average of 2" in accuracy_table(found)
    with pytest.raises(DataError, match="no sample has a usable gold"):
        accuracy_by_source(groups[:1], [[None]])


def test_flat_rows_are_compared_like_any_results(tmp_path: Path) -> None:
    groups = [group(n, "\\boxed{1}", "nothing") for n in (1, 2, 3)]
    first = [[True, False], [False, False], [None, None]]
    second = [[True, True], [True, False], [None, None]]
    for name, correct in (("a", first), ("b", second)):
        write_rows(tmp_path / f"{name}.jsonl", flat_rows(groups, correct))
    rows = read_results(tmp_path / "a.jsonl")
    assert rows[0]["response"] == "\\boxed{1}"
    assert [row["correct"] for row in rows] == [True, False, False, False, None, None]
    assert read_marks(tmp_path / "b.jsonl") == {"math/1": [True, True], "math/2": [True, False]}
    found = compare_folders([tmp_path / "a.jsonl"], [tmp_path / "b.jsonl"])
    assert (found.value_a, found.value_b, found.num_better) == (0.25, 0.75, 2)


def graded(*groups: RolloutGroup) -> list[RolloutGroup]:
    return grade_groups(list(groups), build_reward("r1_zero", mode="four_class"))


def test_a_whole_run_file_counts_and_is_read_back(tmp_path: Path) -> None:
    answer = "so </think> <answer>{}</answer>"
    groups = {
        "one": graded(group(1, answer.format(1)), group(2, answer.format(9))),
        "two": graded(group(3, "\\boxed{3}")),
    }
    bad = replace(group(4, "x").prompt.problem, answer="")
    groups["two"] += graded(
        replace(group(4, "x"), prompt=replace(group(4, "x").prompt, problem=bad))
    )
    content = artefact(
        groups, model="m", template="r1_zero", sampling={"temperature": 1.0}, timestamp=NOW
    )
    overall = content["metadata"]["overall_metrics"]
    assert content["metadata"]["total_samples"] == 3
    assert overall == {
        "answer_accuracy": pytest.approx(2 / 3),
        "format_accuracy": pytest.approx(2 / 3),
        "overall_accuracy": pytest.approx(1 / 3),
        "num_answer_correct": 2,
        "num_answer_incorrect": 1,
        "num_format_correct": 2,
        "num_format_incorrect": 1,
        "num_overall_correct": 1,
        "num_overall_incorrect": 2,
    }
    assert content["subject_breakdown"] == {
        "sums": {"correct": 1, "total": 2, "accuracy": 0.5},
        "unknown": {"correct": 0, "total": 1, "accuracy": 0.0},
    }
    folder = artefact_folder(tmp_path, run="grpo", step=100)
    path = write_artefact(folder, content, run="grpo", step=100, timestamp=NOW)
    assert path == tmp_path / "eval_runs/grpo/step_100/grpo_step_100_eval_20260203_040506.json"
    rows = read_results(path)
    assert [row["id"] for row in rows] == ["one/math/1", "one/math/2", "two/math/3", "two/math/4"]
    assert [row["correct"] for row in rows] == [True, False, False, None]
    assert compare_folders([path], [path]).difference == 0
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match="is no evaluation"):
        read_results(tmp_path / "other.json")


def test_copies_of_a_question_are_samples_of_one_problem(make_group) -> None:
    """LUFFY's file repeats a question 32 times; a paired comparison must not count 32 problems."""
    rows = decoded_rows([make_group("a/1", "11", "00"), make_group("a/2", "10")])
    assert [(row["id"], row["sample"]) for row in rows] == [("a/1", 0), ("a/1", 1), ("a/1", 2)]
