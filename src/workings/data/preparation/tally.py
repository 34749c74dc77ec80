"""What became of every row of a source: written, or dropped for a reason that is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of one preparation; every row that was read ends in exactly one of them.

    Attributes:
        read: rows of the source.
        written: file to rows in it.
        dropped: reason to rows left out.
        changed: what was changed to rows that it was changed in.
        first: reason to the place of the first row that it left out.
    """

    read: int = 0
    written: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def drop(self, reason: str, place: str | None = None, *, rows: int = 1) -> None:
        """Count rows left out, and remember where the first of them stands."""
        if rows:
            self.dropped[reason] += rows
        if place is not None:
            self.first.setdefault(reason, place)

    def check(self) -> None:
        """Raise AssertionError where a row was lost or counted twice."""
        accounted = self.written.total() + self.dropped.total()
        assert accounted == self.read, f"{self.read} rows read, {accounted} accounted for"

    def as_dict(self) -> dict[str, object]:
        """The counts for the card, in an order that does not depend on the rows."""
        return {
            "read": self.read,
            "written": dict(sorted(self.written.items())),
            "dropped": dict(sorted(self.dropped.items())),
            "changed": dict(sorted(self.changed.items())),
        }

    def describe(self) -> str:
        """One line for the log.

        >>> tally = Tally(read=3)
        >>> tally.written["train.jsonl"] += 2
        >>> tally.drop("no_answer", "row 1")
        >>> tally.describe()
        'of 3 rows: train.jsonl 2; dropped: no answer 1 (first: row 1)'
        """
        written = ", ".join(f"{name} {count:,}" for name, count in sorted(self.written.items()))
        text = f"of {self.read:,} rows: {written or 'none written'}"
        dropped = ", ".join(
            f"{reason.replace('_', ' ')} {count:,}"
            + (f" (first: {self.first[reason]})" if reason in self.first else "")
            for reason, count in sorted(self.dropped.items())
        )
        changed = ", ".join(
            f"{what.replace('_', ' ')} {count:,}" for what, count in sorted(self.changed.items())
        )
        text += f"; dropped: {dropped}" if dropped else ""
        return text + (f"; changed: {changed}" if changed else "")
