"""How long a caller waits, with pairs that no cost guard sees coming."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from hostile import fork_server
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.types import Verdict

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork")

BOMB = r"\boxed{bomb+x}"
SLACK_SECONDS = 2.0  # the benchmark holds the grader to 0.1 s; tests also run on busy machines


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    policy = GradingPolicy(deadline_seconds=0.6)
    with Grader(policy, num_workers=2, launcher=fork_server()) as one:
        one.compare("y+x", "5+x")
        yield one


def test_the_caller_waits_no_longer_than_the_deadline(grader: Grader) -> None:
    start = time.monotonic()
    found = grader.grade(BOMB, "5+x")
    assert time.monotonic() - start < 0.6 + SLACK_SECONDS
    assert (found.verdict, found.tier) == (Verdict.TIMEOUT, None)
    assert found.reason == "no verdict within 0.6 s"
    assert 0.5 * 1e3 < found.milliseconds < (0.6 + SLACK_SECONDS) * 1e3


def test_by_default_that_is_two_seconds() -> None:
    with Grader(launcher=fork_server()) as grader:
        grader.compare("y+x", "5+x")
        start = time.monotonic()
        assert grader.grade(BOMB, "5+x").verdict is Verdict.TIMEOUT
        assert 1.8 < time.monotonic() - start < 2.0 + SLACK_SECONDS


def test_a_group_with_one_bad_response_costs_one_deadline_on_one_worker(grader: Grader) -> None:
    responses = [BOMB, *(rf"\boxed{{y+{n}x}}" for n in range(40)), "no box", r"\boxed{5}"]
    start = time.monotonic()
    found = grader.grade_batch(responses, ["5+x"] * len(responses))
    assert time.monotonic() - start < 0.6 + SLACK_SECONDS
    assert found[0].verdict is Verdict.TIMEOUT
    assert {one.verdict for one in found[1:41]} == {Verdict.UNDECIDED}
    assert max(one.milliseconds for one in found[1:41]) < 600
    assert found[41].verdict is Verdict.NO_ANSWER


def test_equal_bombs_are_tried_once_for_all(grader: Grader) -> None:
    start = time.monotonic()
    found = grader.grade_batch([BOMB] * 16, ["5+x"] * 16)
    assert time.monotonic() - start < 0.6 + SLACK_SECONDS
    assert {one.verdict for one in found} == {Verdict.TIMEOUT}


def test_a_time_out_is_tried_again_next_time(grader: Grader) -> None:
    start = time.monotonic()
    assert grader.grade(BOMB, "5+x").verdict is Verdict.TIMEOUT
    assert grader.grade(BOMB, "5+x").verdict is Verdict.TIMEOUT
    assert time.monotonic() - start > 0.6
