"""`workings grade --explain GOLD RESPONSE`."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from workings.cli.grade.explain_text import explanation_json, print_explanation
from workings.cli.main import main
from workings.grading.explain import Explanation, Side, Step
from workings.types import Grade, Verdict

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def _explanation(**values: object) -> Explanation:
    side = Side(text="7 g", normalised="7 g", kind="integer", read_as="7, unit g")
    fields: dict[str, object] = {
        "grade": Grade(
            verdict=Verdict.DIFFERENT,
            tier="number",
            reason="the units differ: kg and g",
            extracted="7 kg",
            milliseconds=0.42,
        ),
        "policy": "boxed",
        "extracted": "7 kg",
        "extraction_note": "the content of the last box",
        "answer": Side(text="7 kg", normalised="7 kg", kind="integer", read_as="7, unit kg"),
        "gold": side,
        "steps": (
            Step(tier="string", outcome="cannot tell", reason="the texts differ"),
            Step(tier="number", outcome="different", reason="the units differ: kg and g"),
            Step(tier="peer", outcome="not asked", reason=""),
        ),
    }
    return Explanation(**{**fields, **values})  # type: ignore[arg-type]


def _printed(explanation: Explanation, response: str = r"so \boxed{7 kg}", width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_explanation(explanation, response, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_way_to_a_verdict() -> None:
    assert _printed(_explanation()).splitlines() == [
        "gold       7 g",
        r"response   so \boxed{7 kg}",
        "extracted  7 kg",
        "           policy boxed: the content of the last box",
        "",
        "            gold       answer",
        "normalised  7 g        7 kg",
        "kind        integer    integer",
        "read as     7, unit g  7, unit kg",
        "",
        "tier    outcome      reason",
        "string  cannot tell  the texts differ",
        "number  different    the units differ: kg and g",
        "peer    not asked",
        "",
        "verdict  different by the number tier, in 0.42 ms: the units differ: kg and g",
    ]


def test_a_response_without_an_answer() -> None:
    grade = Grade(verdict=Verdict.NO_ANSWER)
    lines = _printed(
        _explanation(grade=grade, extracted=None, answer=None, extraction_note="there is no box")
    ).splitlines()
    assert lines[2:4] == ["extracted  nothing", "           policy boxed: there is no box"]
    assert lines[6] == "normalised  7 g        -"
    assert lines[-1] == "verdict  no_answer, in 0.00 ms"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_texts_are_shortened_and_stay_within_the_width(width: int) -> None:
    text = _printed(_explanation(), "x" * 5000 + r"\boxed{7}", width)
    assert "(5,009 characters) ...xxx" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_control_characters_and_markup_are_shown_as_they_are() -> None:
    evil = "\x1b[2J\x9b[bold]x[/bold]\u202e"
    side = Side(text=evil, normalised=evil, kind=evil, read_as=evil)
    grade = Grade(verdict=Verdict.UNDECIDED, reason=evil, extracted=evil)
    steps = (Step(tier="string", outcome="cannot tell", reason=evil),)
    explanation = _explanation(grade=grade, extracted=evil, answer=side, gold=side, steps=steps)
    for text in (_printed(explanation, evil), explanation_json(explanation)):
        assert set(text) & {"\x1b", "\x9b", "\u202e"} == set()
        assert "[bold]x[/bold]" in text


# ---------------------------------------------------------------------------------- command


def test_negative_golds_need_no_quoting_beyond_the_shells(capsys: Captured) -> None:
    assert main(["grade", "--explain", "-3", r"\boxed{-3}"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gold       -3\nresponse   \\boxed{-3}\nextracted  -3\n")
    assert "\nverdict  equal by the string tier, in " in out


def test_a_bare_answer_is_offered_to_be_compared_as_such(capsys: Captured) -> None:
    assert main(["grade", "--explain", "5", "6"]) == 0
    out, err = capsys.readouterr()
    assert "extracted  nothing\n           policy boxed: there is no box\n" in out
    assert err == "note: --bare compares the response as the answer itself\n"
    assert main(["grade", "--bare", "--explain", "5", "6"]) == 0
    out, err = capsys.readouterr()
    assert "extracted  6\n           policy boxed: compared as the answer itself\n" in out
    assert "\nverdict  different by the number tier" in out
    assert err == ""


@pytest.mark.parametrize("place", [0, 1])
def test_either_side_may_come_from_stdin(
    place: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    pair = ["12", r"\boxed{12}"]
    text, pair[place] = pair[place], "-"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
    assert main(["grade", "--explain", *pair]) == 0
    assert "verdict  equal" in capsys.readouterr().out


def test_as_json(capsys: Captured) -> None:
    assert main(["grade", "--json", "--explain", "5", r"\boxed{6}"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["grade"]["verdict"] == "different"
    assert explanation["grade"]["correct"] is False
    assert explanation["steps"][0]["tier"] == "string"
    assert explanation["gold"]["text"] == "5"


def test_policies_and_bad_golds(capsys: Captured) -> None:
    arguments = ["grade", "--policy", "tag", "--explain", "5", "<answer>5</answer>"]
    assert main(arguments) == 0
    assert "policy tag: the content of the last <answer>" in capsys.readouterr().out
    assert main(["grade", "--strict", "--explain", "{", r"\boxed{5}"]) == 1
    assert "verdict  bad_gold" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--explain", "-", "-"], "gold and response cannot both come from standard input"),
        (["--explain", "5", "x", "y"], "--explain takes one gold and one response; 'y' is too"),
        (["--explain", "5", "x", "--policy", "b"], "unknown extraction policy 'b'"),
        (["--explain", "5", "x", "--bare", "--policy", "tag"], "so --policy tag is unused"),
        (["--explain", "5", "x", "--by", "y", "--fresh"], "--by and --fresh are for files"),
        (["--explain", "5", "x", "--out", "y"], "--out are for files, and --explain takes one"),
    ],
)
def test_wrong_use(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["grade", *arguments]) == 2
    assert message in capsys.readouterr().err
