"""Our own grading cases: their form, a second look at their labels, and what the grader says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from case_labels import label_holds
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.grading.text.extraction import extract_answer
from workings.types import Grade, Verdict

CASES = Path(__file__).parents[2] / "cases" / "grading_cases.jsonl"
FIELDS = {"id", "kind", "gold", "response", "expected", "debatable", "response_parts", "note"}
OPTIONAL_FIELDS = {"policy", "check"}
MOST_SECONDS = 2.0
CLAIMS = {True: {"equal", "same_zeros"}, False: {"differ", "other_zeros"}}


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a file, one object a line; only a newline ends a line."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def response_of(case: dict[str, Any]) -> str:
    """The response of a case, put together from its parts where it is given in parts."""
    if case["response"] is not None:
        return str(case["response"])
    return "".join(text * count for text, count in case["response_parts"])


def as_key(case: dict[str, Any]) -> tuple[str, str, str]:
    return case["gold"], response_of(case), case.get("policy", "boxed")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return read_cases(CASES)


@pytest.fixture(scope="module")
def visible_cases(shared_data: Path) -> list[dict[str, Any]]:
    path = shared_data.parent / "spec" / "grader_cases.jsonl"
    if not path.is_file():
        pytest.skip(f"no cases of the specification: {path} does not exist")
    return read_cases(path)


def test_every_case_has_the_fields_of_the_format(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        assert FIELDS | {"check"} <= set(case) <= FIELDS | OPTIONAL_FIELDS, case["id"]
        assert (case["response"] is None) != (case["response_parts"] is None), case["id"]
        assert type(case["expected"]) is type(case["debatable"]) is bool, case["id"]
        assert case["id"].rpartition("-")[0] == case["kind"], case["id"]
        assert case["gold"].strip(), case["id"]
        assert case.get("policy", "boxed") in ("boxed", "tag", "lenient"), case["id"]


def test_ids_and_pairs_are_unique(cases: list[dict[str, Any]]) -> None:
    ids = Counter(case["id"] for case in cases)
    pairs = Counter(map(as_key, cases))
    assert max(ids.values()) == max(pairs.values()) == 1


def test_about_half_of_the_cases_are_true(cases: list[dict[str, Any]]) -> None:
    certain = [case for case in cases if not case["debatable"]]
    assert len(certain) >= 300
    assert len(certain) >= 0.85 * len(cases)
    assert 0.4 <= sum(case["expected"] for case in certain) / len(certain) <= 0.6


def test_every_kind_but_attacks_has_both_verdicts(cases: list[dict[str, Any]]) -> None:
    for kind in {case["kind"] for case in cases}:
        assert {case["expected"] for case in cases if case["kind"] == kind} == {True, False}, kind


def test_no_case_repeats_one_of_the_specification(
    cases: list[dict[str, Any]], visible_cases: list[dict[str, Any]]
) -> None:
    def pair(case: dict[str, Any]) -> tuple[str, str]:
        response = response_of(case)
        return case["gold"], "".join((extract_answer(response) or response).split())

    visible = {pair(case) for case in visible_cases}
    assert not [case["id"] for case in cases if pair(case) in visible]


def test_labels_agree_with_sympy(cases: list[dict[str, Any]]) -> None:
    wrong = []
    for case in cases:
        check = case["check"]
        if check == "read twice":
            continue
        assert set(check) <= CLAIMS[case["expected"]], case["id"]
        if not label_holds(check):
            wrong.append(f"{case['id']}: {check}")
    assert not wrong, "\n".join(wrong)
    assert sum(case["check"] != "read twice" for case in cases) >= 500


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"equal": ["sqrt(12)", "2*sqrt(3)"]}, True),
        ({"differ": ["sqrt(12)", "2*sqrt(3)"]}, False),
        ({"equal": ["(x+1)**2", "x**2+2*x+1"]}, True),
        ({"equal": ["(x+1)**2", "x**2+2*x+2"]}, False),
        ({"equal": ["Abs(x)", "sqrt(x**2)"]}, True),
        ({"equal": ["x", "sqrt(x**2)"]}, False),
        ({"equal": ["x", "y"]}, False),
        ({"equal": ["10**28", "10**28+1"]}, False),
        ({"equal": ["FiniteSet(1,2)", "FiniteSet(2,1)"]}, True),
        ({"equal": ["FiniteSet(1,2)", "FiniteSet(1,2,3)"]}, False),
        ({"equal": ["Interval(0,1)", "Interval.open(0,1)"]}, False),
        ({"equal": ["Tuple(1,2)", "Tuple(2,1)"]}, False),
        ({"equal": ["Matrix([[1,2]])", "Matrix([1,2])"]}, False),
        ({"equal": ["FiniteSet(5)", "5"]}, False),
        ({"same_zeros": ["2*x-4*y", "2*y-x"]}, True),
        ({"same_zeros": ["2*x-4*y", "2*y+x"]}, False),
    ],
)
def test_the_second_look_tells_equal_from_different(
    check: dict[str, list[str]], holds: bool
) -> None:
    assert label_holds(check) is holds


def test_an_unknown_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown claim 'same'"):
        label_holds({"same": ["1", "1"]})


def graded(cases: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Grade]]:
    """Each case with its grade, under its own policy of extraction."""
    grades: dict[str, Grade] = {}
    for policy in sorted({case.get("policy", "boxed") for case in cases}):
        chosen = [case for case in cases if case.get("policy", "boxed") == policy]
        with Grader(GradingPolicy(extraction=policy), num_workers=2) as grader:
            answers = grader.grade_batch(
                [response_of(case) for case in chosen], [case["gold"] for case in chosen]
            )
        grades |= {case["id"]: grade for case, grade in zip(chosen, answers, strict=True)}
    return [(case, grades[case["id"]]) for case in cases]


def wrong_ones(
    results: list[tuple[dict[str, Any], Grade]], *, expected: bool
) -> tuple[list[str], int]:
    """The certain cases of one label that were graded otherwise, as text, and how many there are.

    >>> wrong_ones([], expected=True)
    ([], 0)
    """
    certain = [
        (case, grade)
        for case, grade in results
        if case["expected"] is expected and not case["debatable"]
    ]
    wrong = [
        f"{case['id']}: gold {case['gold']!r:.80}, answer {grade.extracted!r:.80}: "
        f"{grade.verdict} by {grade.tier}, {grade.reason}"
        for case, grade in certain
        if grade.correct is not expected
    ]
    return wrong, len(certain)


def test_our_cases_are_graded_right(cases: list[dict[str, Any]]) -> None:
    results = graded(cases)
    refused, num_true = wrong_ones(results, expected=True)
    accepted, _ = wrong_ones(results, expected=False)
    assert not accepted, "\n".join(accepted)
    assert len(refused) <= 0.02 * num_true, "\n".join(refused)
    broken = [case["id"] for case, grade in results if grade.verdict is Verdict.INTERNAL_ERROR]
    assert not broken
    slow = [case["id"] for case, grade in results if grade.milliseconds > 1000 * MOST_SECONDS]
    assert not slow


def test_the_cases_of_the_specification_are_graded_right(
    visible_cases: list[dict[str, Any]],
) -> None:
    results = graded(visible_cases)
    refused, num_true = wrong_ones(results, expected=True)
    accepted, num_false = wrong_ones(results, expected=False)
    assert len(accepted) <= 1, "\n".join(accepted)
    listing = "\n".join(accepted + refused)
    assert len(accepted) + len(refused) <= 0.02 * (num_true + num_false), listing
    assert not [case["id"] for case, grade in results if grade.verdict is Verdict.INTERNAL_ERROR]
