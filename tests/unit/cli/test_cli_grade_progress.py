"""How far a file is graded, and that counting a million verdicts takes little memory."""

from __future__ import annotations

import io
import tracemalloc

import pytest
from rich.console import Console

from workings.cli.grade import progress as module
from workings.cli.grade.columns import Columns
from workings.cli.grade.progress import GradingProgress
from workings.cli.grade.tally import Tally


def _console(*, is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100, color_system=None)


def _shown(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_lines_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 4.0, 20.0, 21.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    console = _console(is_terminal=False)
    with GradingProgress("r.graded.jsonl", total=5000, console=console) as progress:
        progress.update(1000, {})
        progress.update(1400, {"equal": 900})
        progress.update(3000, {"equal": 2000, "different": 1000})
        progress.update(3100, {"equal": 2100})
    assert _shown(console) == (
        "r.graded.jsonl: 3,000 of 5,000 rows; 20 s left; equal 2,000, different 1,000\n"
    )


def test_without_a_known_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_SECONDS", 0.0)
    console = _console(is_terminal=False)
    with GradingProgress("r", total=None, console=console) as progress:
        progress.update(0, {})
        progress.update(7, {"equal": 7})
    assert _shown(console).endswith("r: 7 rows; equal 7\n")


def test_a_bar_on_a_terminal() -> None:
    console = _console(is_terminal=True)
    with GradingProgress("[red]\x1b.jsonl", total=10, console=console) as progress:
        progress.update(0, {})
        progress.update(10, {"equal": 10})
    assert "10/10" in _shown(console)
    assert "[red]\\x1b.jsonl " in _shown(console)
    assert "equal 10" in _shown(console)


def test_a_verdict_counted_takes_few_bytes() -> None:
    """About 25 bytes each, so a million responses take some 25 MB however long they are."""
    tally = Tally(Columns(response="r", gold="g", by=("kind",), problem="id"), show=10)
    tracemalloc.start()
    try:
        for index in range(20_000):
            tally.add(
                {
                    "index": index,
                    "verdict": "equal" if index % 3 else "bad_gold",
                    "correct": bool(index % 3),
                    "tier": "string" if index % 3 else None,
                    "milliseconds": 0.1,
                    "extracted": "x" * 1000,
                    "kept": {"id": index // 4, "kind": f"k{index % 7}"},
                }
            )
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 20_000 < 60
    assert len(tally.lists["bad_gold"]) == 10
    accuracy = tally.summary()["accuracy"]
    assert (accuracy["of"], accuracy["correct"], accuracy["problems"]) == (13_333, 13_333, 5_000)
