"""What a judge said, read strictly; rates by a direct count and by alpaca-eval."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.judging import (
    MODEL_WON,
    REFERENCE_WON,
    PreferenceJudgement,
    SafetyJudgement,
    annotation_rows,
    is_safe,
    judge_preferences,
    judge_safety,
    length_controlled_win_rate,
    preferred,
    references_of,
)
from workings.types import Problem, Prompt, RolloutGroup


@pytest.mark.parametrize(
    ("reply", "safe"),
    [
        ("True", False),
        ("true.", False),
        ("**False**", True),
        ("'False'", True),
        (" FALSE\nIt declines.", True),
        ("Truely", None),
        ("It is false that", None),
        ("Safe", None),
        ("", None),
    ],
)
def test_replies_about_safety(reply: str, safe: bool | None) -> None:
    assert is_safe(reply) is safe


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("A", "A"),
        ("B.", "B"),
        ("**B**", "B"),
        ("Reply A", "A"),
        ("A and B are equal", None),
        ("A, because B is long", "A"),
        ("Both", None),
        ("I prefer A", None),
        ("AB", None),
        ("", None),
    ],
)
def test_replies_about_preference(reply: str, letter: str | None) -> None:
    assert preferred(reply) == letter


def test_the_share_judged_safe_leaves_out_what_was_not_understood() -> None:
    rows = [{"prompts_final": f"p{i}", "output": "{o}"} for i in range(6)]
    said = ["True", "False", "False", "perhaps", "False", ""]
    seen: list[str] = []

    def judge(prompts: Sequence[str]) -> list[str]:
        seen.extend(prompts)
        return said

    found = judge_safety(rows, judge)
    assert all(f"p{i}\n" in prompt and "{o}" in prompt for i, prompt in enumerate(seen))
    assert found.verdicts == (False, True, True, None, True, None)
    assert found.share_safe is not None
    assert (found.share_safe.value, found.share_safe.num_problems) == (0.75, 4)
    assert found.share_safe.low == pytest.approx(0.30064184, abs=1e-6)  # Wilson, 3 of 4
    values = found.to_dict()
    assert (values["num_safe"], values["num_unsafe"], values["num_unparsed"]) == (3, 1, 2)


def test_several_replies_to_a_prompt_count_as_one_prompt() -> None:
    rows = [
        {"prompts_final": f"p{i}", "output": "o", "sample": sample}
        for i in range(3)
        for sample in range(2)
    ]
    said = ["True", "False", "False", "?", "False", "False"]
    found = judge_safety(rows, lambda prompts: said)
    assert found.problems == (0, 0, 1, 1, 2, 2)
    assert found.share_safe is not None
    assert found.share_safe.value == pytest.approx((0.5 + 1 + 1) / 3)
    assert (found.share_safe.num_problems, found.share_safe.num_samples) == (3, 2)


def test_a_judge_that_says_nothing_gives_no_share() -> None:
    found = SafetyJudgement(verdicts=(None, None), replies=("", "?"))
    assert found.share_safe is None
    assert found.to_dict()["share_safe"] is None


def test_a_judge_that_loses_replies_is_an_error() -> None:
    with pytest.raises(DataError, match="the judge gave 1 replies to 2 prompts"):
        judge_safety([{"prompts_final": "p", "output": "o"}] * 2, lambda prompts: ["True"])


def instructions(count: int) -> list[dict[str, str]]:
    return [
        {"instruction": f"do {i}", "output": f"mine {i}", "generator": "m", "dataset": "d"}
        for i in range(count)
    ]


def test_the_model_wins_wherever_it_is_shown() -> None:
    rows, references = instructions(200), [f"theirs {i}" for i in range(200)]
    firsts = 0

    def judge(prompts: Sequence[str]) -> list[str]:
        nonlocal firsts
        replies = []
        for prompt in prompts:
            is_first = prompt.index("mine") < prompt.index("theirs")
            firsts += is_first
            replies.append("A" if is_first else "B")
        return replies

    found = judge_preferences(rows, references, judge)
    assert set(found.preferences) == {MODEL_WON}
    assert 70 < firsts < 130
    always_first = judge_preferences(rows, references, lambda prompts: ["A"] * len(prompts))
    assert always_first.win_rate is not None
    assert always_first.win_rate.value == firsts / 200
    assert always_first.to_dict()["num_lost"] == 200 - firsts


def test_unparsed_preferences_are_counted_apart() -> None:
    rows, references = instructions(4), ["theirs"] * 4
    found = judge_preferences(rows, references, lambda prompts: ["A", "?", "B", "neither"])
    assert found.num_unparsed == 2
    assert found.win_rate is not None
    assert found.win_rate.num_problems == 2


def test_references_come_with_the_rows() -> None:
    def group(extra: dict[str, object]) -> RolloutGroup:
        problem = Problem(id="a/1", question="q", answer="", extra=extra)
        return RolloutGroup(prompt=Prompt(problem=problem, ids=(1,), text="q"), rollouts=())

    assert references_of([group({"output": "Oak."})]) == ["Oak."]
    with pytest.raises(DataError, match=r"1 of 2 instructions have no reference.*first: a/1"):
        references_of([group({"output": "Oak."}), group({})])


def test_annotations_are_on_alpaca_evals_scale() -> None:
    rows, references = instructions(3), ["a", "b", "c"]
    found = PreferenceJudgement(preferences=(MODEL_WON, REFERENCE_WON, None), replies=("", "", ""))
    written = annotation_rows(rows, references, found, reference_name="ref", annotator="j")
    assert [row["preference"] for row in written] == [2.0, 1.0, None]
    assert written[0] == {
        "instruction": "do 0",
        "output_1": "a",
        "generator_1": "ref",
        "output_2": "mine 0",
        "generator_2": "m",
        "annotator": "j",
        "preference": 2.0,
    }


def test_without_alpaca_eval_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "alpaca_eval", None)
    monkeypatch.setitem(sys.modules, "alpaca_eval.metrics", None)
    with pytest.raises(DataError) as caught:
        length_controlled_win_rate([])
    assert caught.value.hint == "pip install 'workings[judge]' 'setuptools<81'"


@pytest.mark.filterwarnings("ignore")
def test_win_rates_agree_with_alpaca_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its win rate is ours; its regression runs on difficulties made here in the hub's place."""
    glm = pytest.importorskip("alpaca_eval.metrics.glm_winrate", exc_type=ImportError)
    draw = random.Random(0)
    count = 805
    table = tmp_path / "df_gamed.csv"
    lines = [
        f"{i % count},{draw.gauss(0, 1)},{draw.gauss(0, 1)},False,{draw.random()},x"
        for i in range(2 * count)
    ]
    head = "index,instruction_difficulty,std_delta_len,not_gamed_baseline,preference,model"
    table.write_text("\n".join([head, *lines]))
    monkeypatch.setattr(glm, "hf_hub_download", lambda **_: str(table))
    rows = [{**row, "output": "x" * draw.randint(50, 200)} for row in instructions(count)]
    references = ["y" * draw.randint(50, 200) for _ in rows]
    preferences = tuple(
        None if i % 50 == 0 else draw.choice([REFERENCE_WON, MODEL_WON]) for i in range(count)
    )
    found = PreferenceJudgement(preferences=preferences, replies=("",) * count)
    metrics = length_controlled_win_rate(
        annotation_rows(rows, references, found, reference_name="ref", annotator="j")
    )
    assert found.win_rate is not None
    assert metrics["win_rate"] == pytest.approx(100 * found.win_rate.value, abs=1e-9)
    assert metrics["n_total"] == count - found.num_unparsed
    assert abs(metrics["length_controlled_winrate"] - metrics["win_rate"]) < 5
