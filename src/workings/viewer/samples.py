"""The samples of one problem: in a table, and side by side with those of another file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workings.viewer.facets import ANSWER_CLASSES, RIGHT, Facets, kind_of, read_facets
from workings.viewer.markup import badge, table, text_cell
from workings.viewer.parquet_rows import Row
from workings.viewer.rows import RowFile, open_rows
from workings.viewer.versions import Version

KIND_NAMES = {
    "11": "format right, answer right",
    "10": "format right, answer wrong",
    "01": "format wrong, answer right",
    "00": "format wrong, answer wrong",
    "1": "right",
    "0": "wrong",
    "": "not graded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A problem that two files have: the share of right samples in each."""

    problem: str
    first: float
    second: float


def shared_problems(first: RowFile, second: RowFile, *, outcome: str) -> tuple[Shared, ...]:
    """The problems of both files, in the order of the first.

    `outcome` is "all", "first" or "second" (more of that one's samples are right), or "differ".
    """
    every = _shared(first.version, second.version)
    if outcome == "first":
        return tuple(one for one in every if one.first > one.second)
    if outcome == "second":
        return tuple(one for one in every if one.second > one.first)
    if outcome == "differ":
        return tuple(one for one in every if one.first != one.second)
    return every


def samples_table(rows: Sequence[Row]) -> str:
    """HTML: a line for each sample with its reward, advantage, verdict, class and length."""
    components = list(dict.fromkeys(name for row in rows for name in row["components"] or {}))
    headers = ["Sample", "Reward", "Advantage", *components, "Class", "Verdict", "Answer read"]
    headers += ["Tokens", "End"]
    lines = []
    for row in rows:
        parts = row["components"] or {}
        lines.append(
            [
                text_cell(str(row["sample"] if row["sample"] is not None else "")),
                text_cell(_number(row["reward"]), numeric=True),
                text_cell(_number(row["advantage"], signed=True), numeric=True),
                *(text_cell(_number(parts.get(name)), numeric=True) for name in components),
                text_cell(kind_shown(kind_of(row)) or "-", numeric=True),
                text_cell(row["verdict"] or "-"),
                text_cell(_short(row["extracted"])),
                text_cell(
                    "" if row["num_tokens"] is None else str(row["num_tokens"]), numeric=True
                ),
                text_cell(row["finish_reason"] or ""),
            ]
        )
    return table(headers, lines)


def badges_of(row: Row, *, source: bool = False) -> list[str]:
    """What is known of a response, as badges: verdict, class, reward, length, `source` if asked."""
    kind = kind_of(row)
    found = []
    if row["verdict"]:
        tone = {"equal": "good", "different": "bad"}.get(row["verdict"], "warn")
        found.append(badge(row["verdict"], tone, title="what the grader found"))
    if kind:
        tone = {"11": "good", "1": "good", "00": "bad", "0": "bad"}.get(kind, "warn")
        found.append(badge(kind_shown(kind), tone, title=KIND_NAMES[kind]))
    if row["reward"] is not None:
        found.append(badge(f"reward {_number(row['reward'])}"))
    if row["advantage"] is not None:
        found.append(badge(f"advantage {_number(row['advantage'], signed=True)}"))
    if row["num_tokens"] is not None:
        found.append(badge(f"{row['num_tokens']:,} tokens"))
    if row["finish_reason"] == "length":
        found.append(badge("truncated", "warn", title="it ran into the limit of tokens"))
    if row["rollout_source"] not in (None, "policy"):
        found.append(badge(row["rollout_source"], "warn", title="not sampled from the policy"))
    if source and row["source"]:
        found.append(badge(row["source"], title="source"))
    if row["subject"]:
        found.append(badge(row["subject"], title="subject"))
    if row["level"]:
        found.append(badge(f"level {row['level'].removeprefix('Level ')}"))
    return found


def kind_shown(kind: str) -> str:
    """A class as it is written on the page.

    >>> kind_shown("10"), kind_shown("1")
    ('10', 'right')
    """
    return KIND_NAMES[kind] if kind in ANSWER_CLASSES else kind


def summary_of(rows: Sequence[Row]) -> str:
    """One sentence on a group: how many samples are right, and the mean of the rewards."""
    kinds = [kind_of(row) for row in rows]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    text = f"{len(rows)} sample{'s' if len(rows) != 1 else ''}"
    if any(kinds):
        text += f", {sum(kind in RIGHT for kind in kinds)} right"
    if rewards:
        text += f", mean reward {sum(rewards) / len(rewards):.3g}"
        if len(rows) > 1 and len(set(rewards)) == 1:
            text += " (all equal: no advantage)"
    return text


@functools.lru_cache(maxsize=16)
def _shared(first: Version, second: Version) -> tuple[Shared, ...]:
    sides = [_shares(read_facets(open_rows(Path(one[0])))) for one in (first, second)]
    return tuple(
        Shared(problem=problem, first=share, second=sides[1][problem])
        for problem, share in sides[0].items()
        if problem in sides[1]
    )


def _shares(facets: Facets) -> dict[str, float]:
    right: dict[str, list[int]] = {}
    for problem, kind in zip(facets.problem, facets.kind, strict=True):
        counts = right.setdefault(problem, [0, 0])
        counts[0] += kind in RIGHT
        counts[1] += 1
    return {problem: counts[0] / counts[1] for problem, counts in right.items()}


def _number(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return ""
    return f"{value:+.3g}" if signed else f"{value:.4g}"


def _short(text: str | None) -> str:
    text = " ".join((text or "").split())
    return text if len(text) <= 60 else text[:57] + "..."
