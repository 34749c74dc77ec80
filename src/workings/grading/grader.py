"""A response and a gold answer in, a `Grade` out: never an exception, never a hang.

extract ── None ──> no_answer
   │ answer
cache ── hit ──> Grade
   │
string, number, structure (in process) ── decided ──> Grade
   │ open
expression, peer (worker process, deadline) ──> any verdict
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from types import TracebackType

from workings.errors import GradingError
from workings.grading.cache import LruCache
from workings.grading.extraction import extract_answer, extract_boxes
from workings.grading.gold import gold_fault, read_gold, unboxed
from workings.grading.policy import GRADER_VERSION, GradingPolicy
from workings.grading.tiers import decide
from workings.grading.workers.batch import Reply
from workings.grading.workers.launcher import Launcher
from workings.grading.workers.pool import WorkerPool
from workings.types import Grade, Verdict

_LOG = logging.getLogger(__name__)
_UNCACHED = frozenset([Verdict.TIMEOUT, Verdict.INTERNAL_ERROR])
_DEFAULT_POLICY = GradingPolicy()
NOTHING_FOUND = {
    "boxed": "no closed, non-empty box after the thinking",
    "tag": "no answer tag with something in it after the thinking",
    "lenient": "no box, no answer tag and no marked line after the thinking",
}


class Grader:
    """Grades responses under one policy. Usable from any thread; close it, or use `with`.

    Args:
        policy: what counts as an answer, and the limits of one grade.
        num_workers: most worker processes; none is started before the first pair needs one.
        cache_size: most pairs remembered.
        launcher: where workers come from (tests).
    """

    def __init__(
        self,
        policy: GradingPolicy = _DEFAULT_POLICY,
        *,
        num_workers: int = 1,
        cache_size: int = 65_536,
        launcher: Launcher | None = None,
    ) -> None:
        self.policy = policy
        self._pool = WorkerPool(
            num_workers=num_workers,
            deadline_seconds=policy.deadline_seconds,
            launcher=launcher,
        )
        self._cache: LruCache[Grade] = LruCache(cache_size)

    def grade(self, response: str, gold: str) -> Grade:
        """The grade of one response."""
        return self.grade_batch([response], [gold])[0]

    def grade_batch(self, responses: Sequence[str], golds: Sequence[str]) -> list[Grade]:
        """One grade per response, in order; equal (answer, gold) pairs are graded once."""
        _same_length(responses, golds)
        answers = [
            self._extract(response, gold) for response, gold in zip(responses, golds, strict=True)
        ]
        return self.compare_batch(answers, golds)

    def compare(self, answer: str | None, gold: str) -> Grade:
        """The grade of an answer that has already been taken from its response."""
        return self.compare_batch([answer], [gold])[0]

    def compare_batch(self, answers: Sequence[str | None], golds: Sequence[str]) -> list[Grade]:
        """One grade per answer, in order; an answer of None is "no_answer"."""
        _same_length(answers, golds)
        pairs = list(zip(answers, golds, strict=True))
        known: dict[tuple[str | None, str], Grade] = {}
        undecided: list[tuple[str, str]] = []
        for pair in dict.fromkeys(pairs):
            answer, gold = pair
            grade = self._decide(answer, gold)
            if grade is not None:
                known[pair] = grade
            elif answer is not None:
                undecided.append((answer, gold))
        for pair, grade in zip(undecided, self._ask_workers(undecided), strict=True):
            known[pair] = grade
        return [known[pair] for pair in pairs]

    def equal(self, answer: str, other: str) -> bool:
        """True where two answers are the same (majority voting); False where that is unproved."""
        return self.compare(answer, other).correct

    def check_gold(self, gold: object) -> str | None:
        """Why `gold` cannot be graded against, None where it can."""
        return gold_fault(
            gold,
            max_length=self.policy.max_answer_length,
            max_nesting=self.policy.max_depth,
        )

    def close(self) -> None:
        """End the worker processes; the grader is not usable afterwards."""
        self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _extract(self, response: str, gold: str) -> str | None:
        """The answer of `response`; boxes side by side are one list where the gold is such a list.

        They are never joined for a single gold.
        """
        answer = extract_answer(response, self.policy.extraction)
        if answer is None or not isinstance(gold, str) or "," not in gold:
            return answer
        boxes = extract_boxes(response)
        if len(boxes) > 1 and len(boxes) == read_gold(unboxed(gold)).num_elements:
            return ", ".join(boxes)
        return answer

    def _decide(self, answer: str | None, gold: str) -> Grade | None:
        """The grade where it is known, or needs no worker."""
        start = time.perf_counter()
        fault = self.check_gold(gold)
        if fault is not None:
            return Grade(verdict=Verdict.BAD_GOLD, reason=f"the gold: {fault}", extracted=answer)
        if answer is None:
            return Grade(verdict=Verdict.NO_ANSWER, reason=NOTHING_FOUND[self.policy.extraction])
        key = self._key(answer, gold)
        grade = self._cache.get(key)
        if grade is not None:
            return grade
        decision = decide(answer, unboxed(gold), self.policy)
        if decision is None:
            return None
        grade = Grade(
            verdict=decision.verdict,
            tier=decision.tier,
            reason=decision.reason,
            extracted=answer,
            milliseconds=1e3 * (time.perf_counter() - start),
        )
        if len(answer) <= self.policy.max_answer_length:
            self._cache.put(key, grade)
        return grade

    def _ask_workers(self, pairs: Sequence[tuple[str, str]]) -> list[Grade]:
        if not pairs:
            return []
        policy = asdict(self.policy)
        tasks = [
            {"answer": answer, "gold": unboxed(gold), "policy": policy} for answer, gold in pairs
        ]
        grades: list[Grade] = []
        for (answer, gold), reply in zip(pairs, self._pool.run(tasks), strict=True):
            grade = _grade_of_reply(answer, gold, reply)
            if grade.verdict not in _UNCACHED:
                self._cache.put(self._key(answer, gold), grade)
            grades.append(grade)
        return grades

    def _key(self, answer: str, gold: str) -> Hashable:
        return (gold, answer, self.policy, GRADER_VERSION)


def grade(response: str, gold: str, policy: GradingPolicy | None = None) -> Grade:
    """The grade of one response, from a grader that all callers of one policy share."""
    return shared_grader(policy).grade(response, gold)


def shared_grader(policy: GradingPolicy | None = None) -> Grader:
    """The grader that all callers of one policy share; it ends with the interpreter."""
    policy = policy or _DEFAULT_POLICY
    with _SHARED_LOCK:
        if policy not in _SHARED:
            _SHARED[policy] = Grader(policy)
        return _SHARED[policy]


_SHARED: dict[GradingPolicy, Grader] = {}
_SHARED_LOCK = threading.Lock()


def _grade_of_reply(answer: str, gold: str, reply: Reply) -> Grade:
    milliseconds = 1e3 * reply.seconds
    if reply.answer is None:
        return Grade(
            verdict=Verdict.TIMEOUT,
            reason=f"no verdict within {reply.seconds:.1f} s, tried twice",
            extracted=answer,
            milliseconds=milliseconds,
        )
    verdict = Verdict(str(reply.answer["verdict"] or Verdict.INTERNAL_ERROR))
    if verdict is Verdict.INTERNAL_ERROR:
        _LOG.error(
            "grader error on answer %.200r, gold %.200r: %s", answer, gold, reply.answer["detail"]
        )
    return Grade(
        verdict=verdict,
        tier=_text_or_none(reply.answer["tier"]),
        reason=_text_or_none(reply.answer["reason"] or reply.answer["detail"]),
        extracted=answer,
        milliseconds=milliseconds,
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _same_length(answers: Sequence[object], golds: Sequence[object]) -> None:
    if isinstance(answers, str) or isinstance(golds, str):
        raise GradingError("one text given where a list is expected", hint="use grade(...)")
    if len(answers) != len(golds):
        raise GradingError(
            f"{len(answers)} answers and {len(golds)} golds; expected one gold for each answer"
        )
