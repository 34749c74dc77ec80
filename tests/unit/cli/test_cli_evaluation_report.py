"""The tables of an evaluation: strict and lenient accuracy apart, classes, estimates, remarks."""

from __future__ import annotations

from typing import Any

from workings.cli.evaluation.report import evaluation_report
from workings.evaluation.reports import summarise_results
from workings.evaluation.result import summarise
from workings.types import Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict

RIGHT, FORMAT_ONLY, ANSWER_ONLY, NEITHER = (1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)


def _group(
    number: int,
    *marks: tuple[float, float],
    unusable: bool = False,
    subject: str | None = None,
    level: str | None = None,
) -> RolloutGroup:
    problem = Problem(id=f"p/{number}", question="q", answer="a", subject=subject, level=level)
    return RolloutGroup(
        prompt=Prompt(problem=problem, ids=(1,), text="q"),
        rollouts=tuple(
            Rollout(
                ids=(1, 2),
                sampling_logprobs=(0.0, 0.0),
                kept_mass=(1.0, 1.0),
                mask=(True, True),
                off_policy=(False, False),
                text="t",
                finish_reason="eos",
                weight_version=0,
                reward=None if unusable else form * answer,
                components={} if unusable else {"format": form, "answer": answer},
                grade=Grade(verdict=Verdict.EQUAL if answer else Verdict.TIMEOUT, extracted="x"),
            )
            for form, answer in marks
        ),
    )


def _summary(groups: list[RolloutGroup], mode: str, name: str = "sums") -> dict[str, Any]:
    result = summarise(groups, dataset=name, seed=0, seconds=75.0)
    return summarise_results(result, settings={"grader": {"reward": "r1_zero", "mode": mode}})


def test_four_class_shows_both_accuracies_side_by_side() -> None:
    groups = [_group(n, m) for n, m in enumerate((RIGHT, FORMAT_ONLY, ANSWER_ONLY, ANSWER_ONLY))]
    blocks = evaluation_report([_summary(groups, "four_class")]).split("\n\n")
    accuracy, shares, classes, remarks = (block.splitlines() for block in blocks)
    assert accuracy[0].split("  ")[:2] == ["data set", "estimate"]
    assert "strict accuracy, 95 % interval  answer alone, 95 % interval" in accuracy[0]
    assert " ".join(accuracy[2].split()) == (
        "sums pass@1 1/4 25.0 % [4.6, 69.9] 3/4 75.0 % [30.1, 95.4] 1:15"
    )
    assert " ".join(shares[2].split()) == "sums 50.0 % 0.0 % 0.0 % 25.0 % 100.0 % 0.0 % 2.0"
    assert " ".join(classes[0].split()) == (
        "samples by class format and answer right format only neither answer only"
    )
    assert " ".join(classes[2].split()) == "sums 1 (25.0 %) 1 (25.0 %) 0 (0.0 %) 2 (50.0 %)"
    assert remarks == ["sums: answers counted as wrong without proof: timed out 25.0 %"]


def test_strict_leaves_the_lenient_column_open() -> None:
    text = evaluation_report([_summary([_group(0, RIGHT), _group(1, NEITHER)], "strict")])
    accuracy, _, classes, remark = (block.splitlines()[-1] for block in text.split("\n\n")[:4])
    assert accuracy.split()[:6] == ["sums", "pass@1", "1/2", "50.0", "%", "[9.5,"]
    assert accuracy.split()[7] == "-"
    assert classes.split()[-1] == "-"
    assert '"-": the strict reward reads no answer outside of the format' in text
    assert "reward.mode=four_class" in text
    assert remark


def test_several_samples_get_a_table_of_estimates() -> None:
    groups = [_group(0, RIGHT, ANSWER_ONLY), _group(1, NEITHER, NEITHER)]
    text = evaluation_report([_summary(groups, "four_class")])
    lines = text.split("\n\n")[3].splitlines()
    assert [line.split()[0] for line in lines] == [
        *("sums", "------", "avg@2", "pass@1", "pass@2", "maj@2"),
    ]
    assert [cell.split()[0] for cell in lines[2].split("  ")[1:] if cell] == ["25.0", "50.0"]


def test_subjects_and_levels_have_their_intervals() -> None:
    groups = [
        _group(number, mark, subject=subject, level="Level 1")
        for number, (mark, subject) in enumerate(
            [(RIGHT, "Algebra"), (NEITHER, "Algebra"), (RIGHT, "Geometry")]
        )
    ]
    text = evaluation_report([_summary(groups, "strict")])
    table = next(block for block in text.split("\n\n") if block.startswith("sums by subject"))
    assert [" ".join(line.split()) for line in table.splitlines()[2:]] == [
        "Algebra 2 1/2 50.0 % [9.5, 90.5]",
        "Geometry 1 1/1 100.0 % [20.7, 100.0]",
        "unweighted mean of 2 75.0 % [30.4, 95.3]",
    ]
    assert "by level" not in text


def test_several_data_sets_get_their_mean() -> None:
    summaries = [
        _summary([_group(0, RIGHT)], "four_class", "one"),
        _summary([_group(0, ANSWER_ONLY)], "four_class", "two"),
    ]
    row = next(line for line in evaluation_report(summaries).splitlines() if "avg of 2" in line)
    assert [part for part in row.split() if part.endswith(".0")][:2] == ["50.0", "100.0"]


def test_summaries_of_earlier_versions_can_be_shown() -> None:
    summary = _summary([_group(0, RIGHT), _group(1, NEITHER)], "four_class")
    for name in ("lenient_estimates", "finish_reasons", "shares"):
        del summary[name]
    accuracy, shares = evaluation_report([summary]).split("\n\n")[:2]
    assert accuracy.splitlines()[2].split()[7] == "-"
    assert shares.splitlines()[2].split()[-3:-1] == ["-", "-"]


def test_unusable_golds_are_named() -> None:
    groups = [_group(0, RIGHT), _group(1, RIGHT, unusable=True)]
    text = evaluation_report([_summary(groups, "four_class")])
    assert "sums: 1 problems are left out, because their gold answer is unusable" in text


def test_one_row_per_data_set() -> None:
    groups = [_group(0, RIGHT)]
    text = evaluation_report([_summary(groups, "strict", name) for name in ("one", "another")])
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["one", "another"]
