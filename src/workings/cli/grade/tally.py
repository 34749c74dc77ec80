"""Counts over verdicts, from the lines of the output: a few bytes are kept of each."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workings.cli.grade.columns import Columns
from workings.evaluation.intervals import mean_interval, wilson_interval
from workings.types import Verdict

if TYPE_CHECKING:
    import numpy as np

    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

BAD_ROW = "bad_row"
VERDICTS = (*(verdict.value for verdict in Verdict), BAD_ROW)
NOT_COUNTED = (Verdict.BAD_GOLD.value, BAD_ROW)
NO_TIER, NO_VALUE = "none", "(none)"
MOST_NAMES = 200
"""Values of a column that accuracies are computed for, the most frequent ones."""
_UNLABELLED, _FALSE, _TRUE, _DEBATABLE = range(4)


class Tally:
    """What a summary needs to know of every verdict, added one record at a time.

    `show` rows of each kind that needs a look are kept whole.
    """

    def __init__(self, columns: Columns, *, show: int) -> None:
        self._columns = columns
        self._show = show
        self.verdicts: Counter[str] = Counter()
        self.lists: dict[str, list[Mapping[str, Any]]] = {}
        self.num_rows = 0
        self._last_index = -1
        self._verdicts = array("b")
        self._tiers = _Names()
        self._problems = array("q")
        self._milliseconds = array("f")
        self._labels = array("b")
        self._by = {path: _Names() for path in columns.by}

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one line of the output."""
        verdict = record["verdict"] or BAD_ROW
        kept = record.get("kept", {})
        self.verdicts[verdict] += 1
        self.num_rows += record["index"] != self._last_index
        self._last_index = record["index"]
        self._verdicts.append(VERDICTS.index(verdict))
        self._tiers.add(record["tier"] or NO_TIER)
        self._problems.append(hash(_problem(record, kept, self._columns.problem)))
        self._milliseconds.append(record["milliseconds"])
        for path, names in self._by.items():
            names.add(_name(kept.get(path)))
        self._label(record)
        if verdict in (*NOT_COUNTED, Verdict.INTERNAL_ERROR.value):
            self._list(verdict, record)

    def summary(self) -> dict[str, Any]:
        """Counts by verdict, tier, column and label, with the interval of every accuracy."""
        import numpy as np

        verdicts = np.frombuffer(self._verdicts, dtype=np.int8)
        everything = np.ones(len(verdicts), dtype=bool)
        summary = {
            "rows": self.num_rows,
            "responses": len(verdicts),
            "accuracy": self._accuracy(everything),
            "verdicts": _counts(verdicts, everything),
            "tiers": self._by_tier(verdicts),
            "by": {path: self._by_name(names, verdicts) for path, names in self._by.items()},
            "values": {path: len(names) for path, names in self._by.items()},
        }
        if self._columns.expected is not None:
            summary["expected"] = self._against_labels(verdicts)
        return {**summary, "listed": self.lists}

    def _label(self, record: Mapping[str, Any]) -> None:
        label = record.get("expected")
        if label is None:
            self._labels.append(_UNLABELLED)
        elif record.get("debatable"):
            self._labels.append(_DEBATABLE)
        else:
            self._labels.append(_TRUE if label else _FALSE)
            if label != record["correct"]:
                self._list("false_negatives" if label else "false_positives", record)

    def _list(self, name: str, record: Mapping[str, Any]) -> None:
        listed = self.lists.setdefault(name, [])
        if len(listed) < self._show:
            listed.append(record)

    def _accuracy(self, mask: Mask) -> dict[str, Any]:
        """Responses that are right among those that can be: bad golds and bad rows are left out.

        With several responses to a problem it is the mean over problems of the share of each, and
        so is the interval: `mean_interval`.
        """
        import numpy as np

        verdicts = np.frombuffer(self._verdicts, dtype=np.int8)
        left_out = [VERDICTS.index(name) for name in NOT_COUNTED]
        mask = mask & ~np.isin(verdicts, left_out)
        right = verdicts[mask] == VERDICTS.index(Verdict.EQUAL)
        counted: dict[str, Any] = {"correct": int(right.sum()), "of": len(right)}
        if not len(right):
            return {**counted, "value": None, "low": None, "high": None, "interval": None}
        problems = np.frombuffer(self._problems, dtype=np.int64)[mask]
        found, group = np.unique(problems, return_inverse=True)
        if len(found) == len(right):
            low, high = wilson_interval(counted["correct"], len(right))
            value, kind = counted["correct"] / len(right), "wilson"
        else:
            means = np.bincount(group, weights=right) / np.bincount(group)
            low, high = mean_interval(means)  # type: ignore[arg-type]
            value, kind = float(means.mean()), "effective"
        counted["problems"] = len(found)
        return {**counted, "value": value, "low": low, "high": high, "interval": kind}

    def _by_tier(self, verdicts: np.ndarray[Any, Any]) -> dict[str, Any]:
        import numpy as np

        milliseconds = np.frombuffer(self._milliseconds, dtype=np.float32)
        graded = verdicts != VERDICTS.index(BAD_ROW)
        tiers = {}
        for name, where in self._tiers.masks():
            mask = where & graded
            if not mask.any():
                continue
            spent = milliseconds[mask]
            tiers[name] = {
                "responses": int(mask.sum()),
                "verdicts": _counts(verdicts, mask),
                "milliseconds": {
                    "mean": round(float(spent.mean()), 3),
                    "p99": round(float(np.quantile(spent, 0.99)), 3),
                    "max": round(float(spent.max()), 3),
                },
            }
        return tiers

    def _by_name(self, names: _Names, verdicts: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {
            name: {**self._accuracy(mask), "verdicts": _counts(verdicts, mask)}
            for name, mask in sorted(names.masks(MOST_NAMES), key=lambda pair: pair[0])
        }

    def _against_labels(self, verdicts: np.ndarray[Any, Any]) -> dict[str, Any]:
        import numpy as np

        labels = np.frombuffer(self._labels, dtype=np.int8)
        right = verdicts == VERDICTS.index(Verdict.EQUAL)
        counts = {
            "true_positives": int((right & (labels == _TRUE)).sum()),
            "false_positives": int((right & (labels == _FALSE)).sum()),
            "true_negatives": int((~right & (labels == _FALSE)).sum()),
            "false_negatives": int((~right & (labels == _TRUE)).sum()),
        }
        total = sum(counts.values())
        agreed = counts["true_positives"] + counts["true_negatives"]
        low, high = wilson_interval(agreed, total) if total else (None, None)
        return {
            "column": self._columns.expected,
            "labelled": total,
            "agreement": {"value": agreed / total if total else None, "low": low, "high": high},
            **counts,
            "debatable": int((labels == _DEBATABLE).sum()),
            "unlabelled": int((labels == _UNLABELLED).sum()),
        }


class _Names:
    """A column of names that repeat, as numbers."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._values = array("i")

    def add(self, name: str) -> None:
        self._values.append(self._codes.setdefault(name, len(self._codes)))

    def __len__(self) -> int:
        return len(self._codes)

    def masks(self, most: int | None = None) -> Sequence[tuple[str, Mask]]:
        """(name, where it stands), the most frequent first, `most` of them."""
        import numpy as np

        values = np.frombuffer(self._values, dtype=np.int32)
        frequent = np.argsort(-np.bincount(values), kind="stable")[:most]
        names = list(self._codes)
        return [(names[code], values == code) for code in frequent]


def _counts(verdicts: np.ndarray[Any, Any], mask: Mask) -> dict[str, int]:
    """Responses by verdict, in the order of the verdicts, those that occur."""
    import numpy as np

    counts = np.bincount(verdicts[mask], minlength=len(VERDICTS))
    return {name: int(n) for name, n in zip(VERDICTS, counts, strict=True) if n}


def _problem(record: Mapping[str, Any], kept: Mapping[str, Any], column: str | None) -> object:
    value = None if column is None else kept.get(column)
    return ("row", record["index"]) if value is None else _name(value)


def _name(value: object) -> str:
    if value is None:
        return NO_VALUE
    return value if isinstance(value, str) else json.dumps(value, default=str)
