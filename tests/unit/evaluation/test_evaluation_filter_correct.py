"""Which demonstrations are kept, and that the file written reads back as the same rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from workings.data.loading import load_demonstrations
from workings.data.tags import Tags, tag_response
from workings.data.templates import load_template
from workings.errors import DataError, GradingError
from workings.evaluation.filter_correct import (
    card_path,
    filter_correct,
    write_card,
    write_demonstrations,
)
from workings.rewards.components import Component
from workings.rewards.reward import build_reward
from workings.types import Demonstration, Message

R1_ZERO = load_template("r1_zero")


def row(number: int, answer: str | None, response: str) -> Demonstration:
    return Demonstration(
        id=f"set/{number}",
        question=f"q{number}",
        response=response,
        answer=answer,
        source="made",
        extra={"level": number},
    )


def said(answer: str) -> str:
    return f"so </think> <answer>{answer}</answer>"


ROWS = [
    row(0, "4", said("4")),
    row(1, "4", said("5")),
    row(2, None, said("4")),
    row(3, "", said("")),
    row(4, "4", "4"),
    row(5, "1/2", f"<think>{said('1/2')}"),
]


def test_rows_are_kept_by_the_reward_and_all_are_counted() -> None:
    filtered = filter_correct(ROWS, build_reward("r1_zero"), template=R1_ZERO)
    assert [kept.id for kept in filtered.kept] == ["set/0", "set/5"]
    assert filtered.counts == {"kept": 2, "wrong": 2, "unusable_gold": 1, "no_gold": 1}
    assert sum(filtered.counts.values()) == len(ROWS)
    assert filtered.verdicts == {"equal": 2, "different": 1, "no_answer": 1, "bad_gold": 1}


def test_rows_are_kept_as_they_were() -> None:
    filtered = filter_correct(ROWS, build_reward("r1_zero"), template=R1_ZERO)
    assert filtered.kept == (ROWS[0], ROWS[5])


def test_another_reward_keeps_other_rows() -> None:
    rows = [row(0, "4", r"so \boxed{4}"), row(1, "4", said("4"))]
    filtered = filter_correct(rows, build_reward("question_only"))
    assert [kept.id for kept in filtered.kept] == ["set/0"]


def test_points_for_the_format_alone_keep_nothing() -> None:
    right, wrong = (tag_response("so", answer, Tags()) for answer in ("4", "5"))
    rows = [row(0, "4", right), row(1, "4", wrong)]
    filtered = filter_correct(rows, build_reward("tags"), template=load_template("tags"))
    assert [kept.id for kept in filtered.kept] == ["set/0"]


@pytest.mark.parametrize("template", ["r1_zero", "luffy", "own"])
def test_the_thought_tag_of_the_prompt_does_not_stand_twice(template: str) -> None:
    seen: list[str] = []

    def watch(completions: Sequence[object], **_: object) -> list[float]:
        seen.extend(map(str, completions))
        return [0.0] * len(completions)

    reward = build_reward("r1_zero", extra_components=[Component(name="watch", function=watch)])
    filter_correct([ROWS[5]], reward, template=load_template(template))
    assert ("<think>" in "".join(seen)) is (template == "own")


def test_a_grader_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from workings.evaluation import filter_correct as module
    from workings.types import Grade, Verdict

    def broken(groups, reward):  # type: ignore[no-untyped-def]
        grade = Grade(verdict=Verdict.INTERNAL_ERROR)
        return [
            replace(group, rollouts=(replace(group.rollouts[0], reward=0.0, grade=grade),))
            for group in groups
        ]

    monkeypatch.setattr(module, "grade_groups", broken)
    with pytest.raises(GradingError, match="errors of the grader"):
        filter_correct(ROWS, build_reward("r1_zero"))


# ------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize("name", ["new/correct.jsonl", "correct.parquet"])
def test_a_written_file_reads_back_as_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = [ROWS[0], replace(ROWS[1], answer=None), replace(ROWS[5], extra={"subject": "é\n"})]
    write_demonstrations(tmp_path / name, rows)
    loaded = load_demonstrations(tmp_path / name)
    fields = [(r.question, r.response, r.answer, r.source) for r in loaded.items]
    assert fields == [(r.question, r.response, r.answer, r.source) for r in rows]
    assert [r.id for r in loaded.items] == [f"correct/{r.id}" for r in rows]
    assert loaded.items[0].extra["level"] == 0
    assert loaded.items[2].extra["subject"] == "é\n"
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.parquet"])
def test_a_conversation_keeps_its_turns(tmp_path: Path, name: str) -> None:
    turns = tuple(
        Message(role=role, content=text)
        for role, text in [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "q0")]
    )
    rows = [replace(ROWS[0], messages=turns), ROWS[1]]
    write_demonstrations(tmp_path / name, rows)
    first, second = load_demonstrations(tmp_path / name).items
    assert (first.messages, first.question, first.response) == (turns, "q0", rows[0].response)
    assert (second.question, second.response, second.answer) == ("q1", said("5"), "4")


def test_columns_that_would_hide_ours_are_left_out(tmp_path: Path) -> None:
    write_demonstrations(tmp_path / "a.jsonl", [replace(ROWS[0], extra={"response": "old"})])
    assert json.loads((tmp_path / "a.jsonl").read_text())["response"] == ROWS[0].response


def test_other_endings_and_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in '.csv'; expected .jsonl or .parquet"):
        write_demonstrations(tmp_path / "a.csv", ROWS)
    with pytest.raises(DataError, match="no rows to write"):
        write_demonstrations(tmp_path / "a.jsonl", [])


def test_columns_of_mixed_kinds_do_not_fit_into_parquet(tmp_path: Path) -> None:
    rows = [replace(ROWS[0], extra={"x": 1}), replace(ROWS[1], extra={"x": {"y": 1}})]
    with pytest.raises(DataError, match="do not fit into parquet"):
        write_demonstrations(tmp_path / "a.parquet", rows)


def test_the_card_says_how_many_and_why(tmp_path: Path) -> None:
    filtered = filter_correct(ROWS, build_reward("r1_zero"), template=R1_ZERO)
    path = write_card(tmp_path / "correct.jsonl", filtered, {"template": "r1_zero"})
    assert path == card_path(tmp_path / "correct.jsonl")
    assert json.loads(path.read_text()) == {
        "file": "correct.jsonl",
        "rows": filtered.counts,
        "verdicts": dict(filtered.verdicts),
        "template": "r1_zero",
    }


def test_the_published_traces(shared_data: Path) -> None:
    """1,355 of 1,767 agree with the gold by string; the reward adds those equal in value."""
    loaded = load_demonstrations(shared_data / "math_think_sft.parquet")
    filtered = filter_correct(loaded.items, build_reward("r1_zero"), template=R1_ZERO)
    assert len(loaded.items) == 1767
    assert filtered.counts["no_gold"] == filtered.counts["unusable_gold"] == 0
    assert 1355 <= len(filtered.kept) <= 1450
