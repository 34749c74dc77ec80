"""What a search for contamination found, by benchmark: counts, shares and examples by id."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workings.data.contamination import KINDS, ContaminationIndex, Overlap

SHARES = (0.25, 0.5, 0.75, 1.0)
SHOWN_SHARE = 0.5

_Example = tuple[float, int, str, str]


@dataclass(slots=True, kw_only=True)
class _Against:
    """What was found against one benchmark."""

    num_questions: int
    rows: Counter[str] = field(default_factory=Counter)
    best: dict[str, Overlap] = field(default_factory=dict)
    examples: dict[str, list[_Example]] = field(default_factory=lambda: defaultdict(list))


class ContaminationReport:
    """Gathers the overlaps of a training set; texts never enter it, only ids."""

    def __init__(self, index: ContaminationIndex, *, num_examples: int = 20) -> None:
        self._index = index
        self._num_examples = num_examples
        self.num_rows = 0
        self.num_without_question = 0
        self.num_overlapping = 0
        self._against = {
            benchmark.name: _Against(num_questions=len(benchmark.ids))
            for benchmark in index.benchmarks
        }

    def add(
        self, row_id: str, question: str | None, *, options: Sequence[str] = (), more: str = ""
    ) -> list[Overlap]:
        """Look a training row up, count it, and give what was found."""
        self.num_rows += 1
        if question is None:
            self.num_without_question += 1
            if not more:
                return []
        overlaps = self._index.look_up(question or "", options=options, more=more)
        self.num_overlapping += bool(overlaps)
        strongest: dict[str, Overlap] = {}
        for overlap in overlaps:
            against = self._against[overlap.benchmark]
            strongest[overlap.benchmark] = _stronger(strongest.get(overlap.benchmark), overlap)
            before = against.best.get(overlap.question_id)
            against.best[overlap.question_id] = _stronger(before, overlap)
        for name, overlap in strongest.items():
            self._against[name].rows[overlap.kind] += 1
            self._remember(self._against[name].examples[overlap.kind], row_id, overlap)
        return overlaps

    def _remember(self, examples: list[_Example], row_id: str, overlap: Overlap) -> None:
        """Keep the examples of the largest share, of equal ones the first."""
        entry = (overlap.share, -self.num_rows, row_id, overlap.question_id)
        if len(examples) < self._num_examples:
            heapq.heappush(examples, entry)
        elif examples and entry > examples[0]:
            heapq.heapreplace(examples, entry)

    def as_dict(self) -> dict[str, object]:
        """Counts and examples by id, ready for JSON."""
        rule = self._index.rule
        return {
            "rule": {"n": rule.n, "min_words": rule.min_words, "min_share": rule.min_share},
            "rows": self.num_rows,
            "rows_without_question": self.num_without_question,
            "rows_overlapping": self.num_overlapping,
            "benchmarks": {name: _as_dict(found) for name, found in self._against.items()},
        }

    def lines(self) -> list[str]:
        """A table for a person: one line for each benchmark below a heading.

        Questions by their strongest overlap, those with at least half of their n-grams found, and
        training rows.
        """
        half = f"share>={SHOWN_SHARE:g}"
        heading = ("benchmark", "questions", "found", "exact", "whole", "ngram", half, "rows")
        table: list[Sequence[object]] = [heading]
        for name, found in self._against.items():
            kinds = Counter(overlap.kind for overlap in found.best.values())
            table.append(
                (
                    name,
                    found.num_questions,
                    f"{len(found.best)} ({len(found.best) / max(found.num_questions, 1):.1%})",
                    *(kinds[kind] for kind in KINDS),
                    sum(overlap.share >= SHOWN_SHARE for overlap in found.best.values()),
                    found.rows.total(),
                )
            )
        widths = [max(len(str(line[column])) for line in table) for column in range(len(heading))]
        return [
            "  ".join(
                str(cell).ljust(width) if column == 0 else str(cell).rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]


def _stronger(before: Overlap | None, overlap: Overlap) -> Overlap:
    if before is None:
        return overlap
    return min(before, overlap, key=lambda o: (KINDS.index(o.kind), -o.share))


def _as_dict(found: _Against) -> Mapping[str, object]:
    kinds = Counter(overlap.kind for overlap in found.best.values())
    shares = [overlap.share for overlap in found.best.values() if overlap.kind == "ngram"]
    return {
        "questions": found.num_questions,
        "questions_found": len(found.best),
        "questions_by_kind": {kind: kinds[kind] for kind in KINDS},
        "ngram_questions_by_least_share": {
            f"{least:g}": sum(share >= least for share in shares) for least in SHARES
        },
        "rows_by_kind": {kind: found.rows[kind] for kind in KINDS},
        "examples": {
            kind: [
                {"row": row_id, "question": question_id, "share": round(share, 4)}
                for share, _, row_id, question_id in sorted(examples, reverse=True)
            ]
            for kind, examples in sorted(found.examples.items())
        },
    }
