"""What a person sees: plain lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io
import logging

import pytest

from workings.tracking.console import ConsoleSink


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


def test_one_plain_line_per_logged_step() -> None:
    stream = io.StringIO()
    sink = ConsoleSink(total_steps=5, logging_steps=2, stream=stream)
    for step in range(1, 6):
        sink.record(step, "train", {"train/loss": 0.5, "train/reward": step / 10}, time=30.0 * step)
    sink.close()
    assert stream.getvalue() == (
        "step 2/5  reward 0.2  loss 0.5  30 s/step  1:30 left\n"
        "step 4/5  reward 0.4  loss 0.5  30 s/step  30 s left\n"
        "step 5/5  reward 0.5  loss 0.5  30 s/step\n"
    )


def test_lines_are_not_wrapped_and_markup_is_not_read() -> None:
    stream = io.StringIO()
    sink = ConsoleSink(total_steps=1, stream=stream)
    text = "a warning with [bold]brackets[/bold] " + "and many words " * 20
    logging.getLogger("workings.rewards").warning(text)
    sink.close()
    assert stream.getvalue() == f"warning: {text}\n"


def test_evaluations_and_final_rows_are_lines() -> None:
    stream = io.StringIO()
    sink = ConsoleSink(total_steps=5, stream=stream)
    sink.record(0, "eval", {"eval/sums/accuracy": 0.5}, time=0.0)
    sink.record(5, "timing", {"timing/rollout": 1.0}, time=0.0)
    sink.record(5, "final", {"final/accuracy": 0.75}, time=0.0)
    sink.close()
    assert stream.getvalue() == (
        "evaluation at step 0: sums: accuracy 50.0 %\nfinal: accuracy 0.75\n"
    )


def test_the_bar_of_a_terminal_shows_steps_time_left_and_metrics() -> None:
    stream = Terminal()
    sink = ConsoleSink(total_steps=4, name="grpo", stream=stream)
    for step in range(1, 4):
        sink.record(step, "train", {"train/reward": step / 4}, time=60.0 * step)
    logging.getLogger("workings.training").info("weights loaded")
    sink.close()
    shown = stream.getvalue()
    for expected in ("grpo", "3/4", "1:00 left", "reward 0.75", "weights loaded"):
        assert expected in shown


def test_a_resumed_bar_starts_where_the_run_does() -> None:
    stream = Terminal()
    sink = ConsoleSink(total_steps=10, stream=stream)
    sink.record(8, "train", {"train/loss": 1.0}, time=0.0)
    sink.truncate_after(4)
    sink.record(5, "train", {"train/loss": 1.0}, time=9.0)
    sink.record(6, "train", {"train/loss": 1.0}, time=10.0)
    sink.close()
    assert "6/10" in stream.getvalue()
    assert "4 s left" in stream.getvalue()


def test_no_colour_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    sink = ConsoleSink(total_steps=4, stream=stream)
    logging.getLogger("workings.training").warning("mind this")
    sink.close()
    assert "\x1b[33m" not in stream.getvalue()
    assert "warning: mind this" in stream.getvalue()


def test_the_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(total_steps=1)
    sink.record(1, "train", {"train/loss": 1.0}, time=0.0)
    sink.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "step 1/1  loss 1\n"
