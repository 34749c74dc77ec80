"""What a worker answers to one pair."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from workings.grading.policy import GradingPolicy
from workings.grading.workers import pair
from workings.types import Verdict


def task(answer: str, gold: str, **policy: object) -> dict[str, object]:
    settings = asdict(GradingPolicy(**policy))  # type: ignore[arg-type]
    return {"answer": answer, "gold": gold, "policy": settings}


def test_verdict_tier_and_reason() -> None:
    found = pair.answer(task(r"\sqrt{12}", r"2\sqrt{3}"))
    assert (found["verdict"], found["tier"], found["detail"]) == ("equal", "expression", None)
    assert found["reason"]
    assert pair.answer(task("x+1", "x+2"))["verdict"] == "different"
    assert pair.answer(task("x+1", "1+x", tiers=["string"]))["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MemoryError(), Verdict.REFUSED),
        (RecursionError(), Verdict.REFUSED),
        (ZeroDivisionError("x"), Verdict.INTERNAL_ERROR),
    ],
)
def test_what_a_parser_does_with_text_never_ends_a_worker(
    error: Exception, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pair, "decide", raising)
    found = pair.answer(task("1", "2"))
    assert found["verdict"] == verdict
    assert found["detail"] == repr(error)


def test_a_task_that_is_none_is_an_error_of_the_grader() -> None:
    assert pair.answer({"answer": "1"})["verdict"] == "internal_error"


def test_warming_up_loads_what_the_first_comparison_needs() -> None:
    pair.warm_up()
    assert pair.answer(task("x+1", "1+x"))["verdict"] == "equal"
