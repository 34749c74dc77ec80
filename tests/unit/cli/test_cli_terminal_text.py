"""What a model wrote cannot command the terminal it is printed on."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.cli import rollout_text
from workings.cli.commands import sample
from workings.cli.console import write_error, write_note
from workings.cli.terminal_text import for_stdout, for_terminal, on_one_line, without_surrogates
from workings.errors import DataError
from workings.types import Problem, Prompt, Rollout, RolloutGroup

Captured = pytest.CaptureFixture[str]
ATTACKS = [
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b]0;title\x07",  # sets the window's title
    "\x1b]52;c;ZXZpbA==\x07",  # sets the clipboard
    "\x9b31m",  # colour, in one character of introduction
    "right\rwrong",  # writes over the line
    "ab\b\bcd",
    "\u202e5\u202c",  # shows text from right to left
    "\u2066x\u2069",
    "5\u200b",
    "\x00",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_character_is_left(attack: str) -> None:
    safe = for_terminal(attack)
    assert safe != attack
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in safe)


@given(st.text(alphabet=st.characters(codec=None)))
def test_every_text_can_be_printed_and_nothing_legible_is_lost(text: str) -> None:
    safe = for_terminal(text)
    safe.encode("utf-8")
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in safe if c not in "\n\t")
    assert for_terminal(safe) == safe
    kept = [c for c in text if c.isprintable() or c in "\n\t"]
    assert [c for c in safe if c in "\n\t"] == [c for c in kept if c in "\n\t"]
    assert set(kept) <= set(safe)
    assert "\n" not in on_one_line(text)


@pytest.mark.parametrize("text", ["", "x² ≤ ∞\n\t是的", "👩‍👩‍👧", "می‌خواهم", "a\\b"])
def test_ordinary_text_stays(text: str) -> None:
    assert for_terminal(text) == text


def test_a_pipe_gets_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert for_stdout("\x1b[1m\ud83d") == "\x1b[1m?"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert for_stdout("\x1b[1m\ud83d") == "\\x1b[1m\\ud83d"
    assert without_surrogates("é") == "é"


def test_notes_and_errors_are_safe(capsys: Captured) -> None:
    write_note("\x1b[2J")
    write_error(DataError("column '\x9b'", hint="a\nb\r"))
    assert capsys.readouterr().err == ("note: \\x1b[2J\nerror: column '\\x9b'\n\nhint: a\nb\\r\n")


def _group(text: str) -> RolloutGroup:
    rollout = Rollout(
        ids=(1,),
        sampling_logprobs=(0.0,),
        kept_mass=(1.0,),
        mask=(True,),
        off_policy=(False,),
        text=text,
        finish_reason="stop",
        weight_version=0,
        reward=0.0,
    )
    problem = Problem(id="p\x1b", question="\x1b", answer="\x1b")
    return RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text="\x1b"), rollouts=(rollout,))


def test_inspected_rollouts_are_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own colours are the only escapes."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    group = _group("\x1b[2Ja\rb\n</think> \x9b5n")
    text = rollout_text.describe_group(group, number=1, reward="r1_zero")
    assert "\\x1b[2Ja\\rb\n" in text
    assert "\x1b[34m</think>\x1b[0m \\x9b5n" in text
    shown = rollout_text.describe_batch([group], reward="r1_zero")
    assert set(text + shown) & {"\r", "\x9b", "\x07"} == set()
    assert text.count("\x1b") == 4  # heading and tag, begun and ended


def test_a_sampled_answer_is_safe_on_a_terminal(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from workings.config.compose import compose

    monkeypatch.setattr(sample, "collect_groups", lambda *_, **__: [_group("\x1b[2J5")])
    config = compose([], [f"model.name_or_path={tiny_folder}", "template=think"], kind="sample")
    for is_terminal, shown in ((True, "\\x1b[2J5\n"), (False, "\x1b[2J5\n")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda value=is_terminal: value, raising=False)
        assert sample.run(config, question="?") == 0  # type: ignore[arg-type]
        assert capsys.readouterr().out == shown
