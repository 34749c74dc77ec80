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
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from workings.errors import GradingError
from workings.grading.gold import gold_fault, read_gold, unboxed
from workings.grading.memory import GradeMemory
from workings.grading.policy import GradingPolicy
from workings.grading.text.extraction import extract_answer, extract_boxes
from workings.grading.tiers import decide
from workings.grading.workers.batch import Reply
from workings.grading.workers.launcher import Launcher
from workings.grading.workers.pool import WorkerPool
from workings.types import Grade, RolloutGroup, Verdict

_LOG = logging.getLogger(__name__)
_DEFAULT_POLICY = GradingPolicy()
NOTHING_FOUND = {
    "boxed": "no closed, non-empty box after the thinking",
    "tag": "no answer tag with something in it after the thinking",
    "lenient": "no box, no answer tag and no marked line after the thinking",
}


class Grader:
    """Grades responses under one policy. Usable from any thread; close it, or use `with`.

    A forked or pickled copy is a grader of its own, with workers of its own.

    Args:
        policy: what counts as an answer, and the limits of one grade.
        num_workers: most worker processes; none is started before the first pair needs one.
        cache_size: most pairs remembered.
        store: SQLite file that remembers them between runs and for other processes.
        launcher: where workers come from (tests).
    """

    def __init__(
        self,
        policy: GradingPolicy = _DEFAULT_POLICY,
        *,
        num_workers: int = 1,
        cache_size: int = 65_536,
        store: str | Path | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.policy = policy
        path = Path(store) if store is not None else None
        self._settings: dict[str, Any] = {
            "num_workers": num_workers, "cache_size": cache_size, "store": path
        }  # fmt: skip
        self._policy_fields = asdict(policy)
        self._memory = GradeMemory(policy, size=cache_size, path=path)
        self._pool = WorkerPool(
            num_workers=num_workers,
            deadline_seconds=policy.deadline_seconds,
            launcher=launcher,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_grader, (self.policy, self._settings)

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
        found: list[tuple[str, str, Grade]] = []
        asked: list[tuple[str, str]] = []
        with self._pool.batch() as batch:
            for answer, gold in dict.fromkeys(pairs):
                grade = self._known(answer, gold)
                if grade is None and answer is not None:
                    grade = self._decide(answer, gold)
                    if grade is None:
                        asked.append((answer, gold))
                        batch.submit(self._task(answer, gold))
                        continue
                    found.append((answer, gold, grade))
                if grade is not None:
                    known[answer, gold] = grade
                batch.serve()  # the workers are not to wait for what is decided here
            for (answer, gold), reply in zip(asked, batch.replies(), strict=True):
                found.append((answer, gold, _grade_of_reply(answer, gold, reply)))
        self._memory.put(found)
        known |= {(answer, gold): grade for answer, gold, grade in found}
        return [known[pair] for pair in pairs]

    def grade_groups(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """The same groups with the grade of every rollout against its problem's answer.

        All rollouts are one batch. Rewards are left alone: `rewards.reward.grade_groups` gives
        them, from grades of its own format.
        """
        responses = [rollout.text for group in groups for rollout in group.rollouts]
        golds = [group.problem.answer for group in groups for _ in group.rollouts]
        grades = iter(self.grade_batch(responses, golds))
        return [
            replace(
                group,
                rollouts=tuple(replace(one, grade=next(grades)) for one in group.rollouts),
            )
            for group in groups
        ]

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

    def start(self) -> None:
        """Begin to start the first worker, and do not wait for it.

        Without this the first pair that needs a worker also waits for its libraries to load, about
        a second.
        """
        self._pool.start()

    def close(self) -> None:
        """End the worker processes; the grader is not usable afterwards."""
        self._pool.close()
        self._memory.close()

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

    def _known(self, answer: str | None, gold: str) -> Grade | None:
        """The grade where nothing is to be compared, or the pair was graded before."""
        fault = self.check_gold(gold)
        if fault is not None:
            return Grade(verdict=Verdict.BAD_GOLD, reason=f"the gold: {fault}", extracted=answer)
        if answer is None:
            return Grade(verdict=Verdict.NO_ANSWER, reason=NOTHING_FOUND[self.policy.extraction])
        return self._memory.get(answer, gold)

    def _decide(self, answer: str, gold: str) -> Grade | None:
        """The grade of the tiers that need no worker, None where one is needed."""
        start = time.perf_counter()
        decision = decide(answer, unboxed(gold), self.policy)
        if decision is None:
            return None
        return Grade(
            verdict=decision.verdict,
            tier=decision.tier,
            reason=decision.reason,
            extracted=answer,
            milliseconds=1e3 * (time.perf_counter() - start),
        )

    def _task(self, answer: str, gold: str) -> dict[str, object]:
        return {"answer": answer, "gold": unboxed(gold), "policy": self._policy_fields}


def grade(response: str, gold: str, policy: GradingPolicy | None = None) -> Grade:
    """The grade of one response, from a grader that all callers of one policy share."""
    return shared_grader(policy).grade(response, gold)


def shared_grader(policy: GradingPolicy | None = None) -> Grader:
    """The grader that all callers of one policy share; it ends with the interpreter."""
    policy = policy or _DEFAULT_POLICY
    if policy not in _SHARED:
        _SHARED.setdefault(policy, Grader(policy))  # no lock, which a fork might find held
    return _SHARED[policy]


_SHARED: dict[GradingPolicy, Grader] = {}


def _make_grader(policy: GradingPolicy, settings: dict[str, Any]) -> Grader:
    return Grader(policy, **settings)


def _grade_of_reply(answer: str, gold: str, reply: Reply) -> Grade:
    milliseconds = 1e3 * reply.seconds
    if reply.answer is None:
        return Grade(
            verdict=Verdict.TIMEOUT,
            reason=reply.reason,
            extracted=answer,
            milliseconds=milliseconds,
        )
    verdict = Verdict(reply.answer["verdict"])
    if verdict is Verdict.INTERNAL_ERROR:
        _LOG.error(
            "grader error on answer %.200r, gold %.200r: %s", answer, gold, reply.answer["detail"]
        )
    return Grade(
        verdict=verdict,
        tier=reply.answer["tier"],
        reason=reply.answer["reason"] or reply.answer["detail"],
        extracted=answer,
        milliseconds=milliseconds,
    )


def _same_length(answers: Sequence[object], golds: Sequence[object]) -> None:
    if isinstance(answers, str) or isinstance(golds, str):
        raise GradingError("one text given where a list is expected", hint="use grade(...)")
    if len(answers) != len(golds):
        raise GradingError(
            f"{len(answers)} answers and {len(golds)} golds; expected one gold for each answer"
        )
