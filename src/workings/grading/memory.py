"""Grades that need not be found a second time: in memory, and on request in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workings.grading.cache import LruCache
from workings.grading.policy import GradingPolicy
from workings.types import Grade, Verdict

if TYPE_CHECKING:
    from workings.grading.store import GradeStore

NEVER_KEPT = frozenset([Verdict.TIMEOUT, Verdict.INTERNAL_ERROR])
"""Verdicts that the same pair need not get again."""
LONGEST_IN_MEMORY = 512
"""Most characters of an answer kept in memory, which a policy that rambles would fill."""


class GradeMemory:
    """Grades under one policy and grader version, by extracted answer and gold.

    Args:
        policy: the policy; a pair whose answer is longer than it reads is not kept.
        size: most grades in memory.
        path: the SQLite file that keeps them between runs, None for none.
    """

    def __init__(self, policy: GradingPolicy, *, size: int, path: Path | None = None) -> None:
        self._longest = policy.max_answer_length
        self._cache: LruCache[Grade] = LruCache(size)
        self._store: GradeStore | None = None
        if path is not None:
            from workings.grading.store import GradeStore  # needs SQLite, which few graders do

            self._store = GradeStore(path, policy)

    def get(self, answer: str, gold: str) -> Grade | None:
        """The grade of the pair, None where it is not known."""
        if len(answer) > self._longest:
            return None
        grade = self._cache.get((gold, answer))
        if grade is None and self._store is not None:
            grade = self._store.get(answer, gold)
            if grade is not None:
                self._keep(answer, gold, grade)
        return grade

    def put(self, found: Sequence[tuple[str, str, Grade]]) -> None:
        """Keep the grades of these (answer, gold) pairs."""
        kept = [
            (answer, gold, grade)
            for answer, gold, grade in found
            if grade.verdict not in NEVER_KEPT and len(answer) <= self._longest
        ]
        for answer, gold, grade in kept:
            self._keep(answer, gold, grade)
        if kept and self._store is not None:
            self._store.put(kept)

    def close(self) -> None:
        """Close the file."""
        if self._store is not None:
            self._store.close()

    def _keep(self, answer: str, gold: str, grade: Grade) -> None:
        if len(answer) <= LONGEST_IN_MEMORY:
            self._cache.put((gold, answer), grade)
