"""Every adversarial case of the case file: time, memory, verdict, and nothing left behind."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from processes import all_gone, descendants, wait_until
from workings.grading.grader import Grader
from workings.grading.workers.pool import MEMORY_BYTES
from workings.types import Verdict

MOST_SECONDS = 2.0
"""For one case with the default policy, on a grader that has started."""


@pytest.fixture(scope="module")
def cases(shared_data: Path) -> list[dict[str, Any]]:
    file = shared_data.parent / "spec" / "grader_cases.jsonl"
    if not file.is_file():
        pytest.skip(f"no case file: {file} does not exist")
    lines = file.read_text(encoding="utf-8").split("\n")
    return [case for case in map(json.loads, filter(None, lines)) if case["kind"] == "adversarial"]


def response_of(case: dict[str, Any]) -> str:
    if case["response"] is not None:
        return str(case["response"])
    return "".join(text * count for text, count in case["response_parts"])


def most_memory(pid: int) -> int:
    """Most bytes that the process ever had in memory."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0  # it was killed meanwhile
    return next(
        (int(line.split()[1]) << 10 for line in status.split("\n") if line.startswith("VmHWM")), 0
    )


def test_every_adversarial_case_ends_in_time_and_within_its_memory(
    cases: list[dict[str, Any]],
) -> None:
    before = descendants()
    memory_here = psutil.Process().memory_info().rss
    with Grader(num_workers=2) as grader:
        grader.compare("x+1", "1+x")  # the libraries are loaded
        late = {}
        for case in cases:
            response = response_of(case)
            start = time.monotonic()
            found = grader.grade(response, case["gold"])
            seconds = time.monotonic() - start
            if seconds > MOST_SECONDS:
                late[case["id"]] = seconds
            assert found.verdict is not Verdict.INTERNAL_ERROR, case["id"]
            if not case["debatable"]:
                assert found.correct is case["expected"], case["id"]
        started = descendants() - before
        if sys.platform == "linux":
            assert max(map(most_memory, started)) < MEMORY_BYTES
        assert psutil.Process().memory_info().rss - memory_here < 200 << 20
        assert grader.compare("x+2", "2+x").correct
    assert not late
    assert wait_until(lambda: all_gone(started))


def test_all_of_them_at_once_get_the_verdicts_that_they_get_alone(
    cases: list[dict[str, Any]],
) -> None:
    pairs = [(response_of(case), case["gold"]) for case in cases]
    with Grader(num_workers=2) as grader:
        batch = grader.grade_batch(*zip(*pairs, strict=True))
        with ThreadPoolExecutor(8) as threads, Grader(num_workers=1) as other:
            single = list(threads.map(lambda pair: other.grade(*pair), pairs))
    assert [one.verdict for one in batch] == [one.verdict for one in single]


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
def test_a_thousand_grades_from_32_threads_are_as_serial_ones() -> None:
    pairs = [
        pair
        for n in range(250)
        for pair in (
            (rf"\boxed{{x+{n}}}", f"{n + (n % 3 == 0)}+x"),
            (rf"\boxed{{\sqrt{{{4 * n}}}}}", rf"2\sqrt{{{n}}}"),
            (rf"\boxed{{{n}/2}}", f"{n / 2}"),
            (rf"\boxed{{(x-{n})^2}}", f"x^2-{2 * n}x+{n * n}"),
        )
    ]
    with Grader(num_workers=2, cache_size=0) as grader:
        serial = [grader.grade(*pair).verdict for pair in pairs]
        with ThreadPoolExecutor(32) as threads:
            concurrent = list(threads.map(lambda pair: grader.grade(*pair).verdict, pairs))
    assert concurrent == serial
    assert {Verdict.EQUAL, Verdict.DIFFERENT} <= set(serial)
