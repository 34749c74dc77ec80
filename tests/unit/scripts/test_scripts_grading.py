"""The grading benchmark: pairs are what they claim, errors are counted, a grader can be killed."""

from __future__ import annotations

import doctest
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
GOLDS = (
    *("5", "12345", "1,234,567", "-3", "0.25", "even", r"\text{odd}", r"90^\circ", "x+1"),
    *(r"\frac{1}{2}", r"\left(3, \frac{\pi}{2}\right]", "(1,2)", "x = 5", r"3\sqrt{13}", "3x+4y=0"),
)


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


# --------------------------------------------------------------------------------------- the pairs


def test_examples_in_the_docstrings() -> None:
    import grading_pairs
    import grading_styles

    for module in (grading_pairs, grading_styles):
        assert doctest.testmod(module).failed == 0


def test_a_gold_gives_itself_a_variant_and_a_changed_digit() -> None:
    from grading_pairs import CHANGED, RESTYLED, SAME, pairs_of

    from workings.grading.text.extraction import last_box

    pairs = pairs_of("made_up", GOLDS)
    by_kind = {
        kind: {pair.gold: last_box(pair.response) for pair in pairs if pair.kind == kind}
        for kind in (SAME, RESTYLED, CHANGED)
    }
    assert by_kind[SAME] == {gold: gold for gold in GOLDS}
    assert set(by_kind[RESTYLED]) == set(GOLDS)
    assert set(GOLDS) - set(by_kind[CHANGED]) == {"even", r"\text{odd}"}
    assert all(answer != gold for gold, answer in by_kind[CHANGED].items())
    assert {pair.expected for pair in pairs if pair.kind == CHANGED} == {False}
    assert {pair.expected for pair in pairs if pair.kind != CHANGED} == {True}
    assert all(pair.style for pair in pairs if pair.kind == RESTYLED)
    assert len({pair.id for pair in pairs}) == len(pairs)


def test_pairs_depend_on_the_seed_alone() -> None:
    from grading_pairs import pairs_of

    assert pairs_of("a", GOLDS) == pairs_of("a", GOLDS)
    assert pairs_of("a", GOLDS) != pairs_of("a", GOLDS, seed=1)
    assert pairs_of("a", GOLDS)[:2] == pairs_of("a", GOLDS[:1])[:2]


def test_an_empty_gold_gives_no_pair() -> None:
    from grading_pairs import pairs_of

    assert pairs_of("a", ["", "  "]) == []


@given(
    st.one_of(st.integers(-(10**9), 10**9).map(str), st.decimals(0, 999, places=3).map(str)),
    st.integers(0, 10**6),
)
@settings(max_examples=300, deadline=None)
def test_a_changed_digit_changes_the_number(gold: str, seed: int) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    from grading_pairs import with_a_digit_changed

    changed = with_a_digit_changed(gold, random.Random(seed))
    assert changed is not None
    assert len(changed) == len(gold)
    assert Fraction(changed) != Fraction(gold)


@pytest.mark.parametrize(
    ("gold", "kept"),
    [
        ("x_{12} + 7", "x_{12} + "),
        (r"5\text{ cm}^2", r"\text{ cm}^2"),
        (r"\log_2 (8) = 3", r"\log_2 (8) = "),
        (r"\cos(2.5) \approx -0.801", r"\cos(2.5) \approx -"),
        ("x^2 + y^2 = 9", "x^2 + y^2 = "),
    ],
)
def test_digits_that_need_not_matter_stay(gold: str, kept: str) -> None:
    from grading_pairs import with_a_digit_changed

    for seed in range(40):
        changed = with_a_digit_changed(gold, random.Random(seed))
        assert changed is not None
        assert changed != gold
        assert kept in changed


@pytest.mark.parametrize(
    "gold", [r"1.09 \times 10^{0}", "1^n", r"\frac{0}{5}", "0/5", "(1)^{2}", "x_1"]
)
def test_a_gold_with_a_digit_that_is_free_is_left_alone(gold: str) -> None:
    from grading_pairs import with_a_digit_changed

    assert with_a_digit_changed(gold, random.Random(0)) is None


def test_the_style_that_is_named_makes_the_variant() -> None:
    from grading_styles import GENERAL_STYLES, PARTICULAR_STYLES, restyled

    styles = {
        style.__name__.replace("_", " "): style for style in PARTICULAR_STYLES + GENERAL_STYLES
    }
    used = set()
    for seed in range(60):
        for gold in GOLDS:
            name, text = restyled(gold, random.Random(seed))
            assert text == styles[name](gold) != gold
            used.add(name)
    assert used == set(styles)


def test_a_response_has_the_length_and_one_box_at_its_end() -> None:
    from grading_pairs import response_with

    from workings.grading.text.extraction import extract_boxes

    for seed in range(30):
        response = response_with("$7$" if seed % 2 else "7", random.Random(seed))
        assert 1_200 <= len(response) <= 1_500
        assert extract_boxes(response) == ["$7$" if seed % 2 else "7"]
        assert "boxed" in response[-60:]


def test_cases_are_read_and_those_of_other_policies_left_out(tmp_path: Path) -> None:
    from grading_pairs import read_cases

    case = {
        "id": "a-1",
        "kind": "algebra",
        "gold": "5",
        "expected": True,
        "debatable": False,
        "response": "one\x85 line: \\boxed{5}",
        "response_parts": None,
    }
    parts = case | {"id": "a-2", "response": None, "response_parts": [["(", 3], ["x", 1]]}
    tagged = case | {"id": "a-3", "policy": "tag"}
    path = tmp_path / "cases.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in (case, parts, tagged)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = read_cases(path)
    assert [pair.id for pair in found] == ["a-1", "a-2"]
    assert [pair.response for pair in found] == ["one\x85 line: \\boxed{5}", "(((x"]


def test_golds_are_spread_over_the_data_set(shared_data: Path) -> None:
    from grading_pairs import golds_of

    everything = golds_of(shared_data, "gsm8k_test")
    some = golds_of(shared_data, "gsm8k_test", most=10)
    assert some == [everything[index * len(everything) // 10] for index in range(10)]


# ------------------------------------------------------------------------------------- the runner


@contextmanager
def strange_grader(name: str) -> Iterator[Callable[[str, str], bool]]:
    """A grader that hangs, dies or raises where the response says so."""

    def judge(response: str, gold: str) -> bool:
        sys.stdout.write("noise that must not reach the terminal")
        if response == "hang":
            time.sleep(60)
        if response == "die":
            os._exit(3)
        if response == "raise":
            raise ValueError("model text")
        return response == gold

    yield judge


def pairs_with(responses: Sequence[str]) -> list[Any]:
    from grading_pairs import Pair

    return [
        Pair(id=str(index), kind="x", gold="a", response=response, expected=True)
        for index, response in enumerate(responses)
    ]


def test_a_grader_that_hangs_dies_or_raises_goes_on_with_the_next_pair(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from grading_runner import Runner

    responses = ["a", "hang", "a", "die", "raise", "b", "a"]
    with Runner("any", seconds_per_pair=0.5, load=strange_grader) as runner:
        begun = time.perf_counter()
        outcomes = runner.run(pairs_with(responses))
        assert time.perf_counter() - begun < 30
    assert [one.accepted for one in outcomes] == [one == "a" for one in responses]
    assert [one.killed for one in outcomes] == [one in ("hang", "die") for one in responses]
    assert [one.failed for one in outcomes] == [one == "raise" for one in responses]
    assert outcomes[1].seconds >= 0.5
    assert capfd.readouterr().out == ""


def test_the_memories_of_the_grader_are_found_and_emptied() -> None:
    from grading_runner import OUR_MODULES, text_memories

    from workings.grading.reading.number import read_number  # noqa: F401 - its memory is one of those found

    @lru_cache
    def of_the_grader(text: str) -> str:
        return text

    @lru_cache
    def of_another(text: str) -> str:
        return text

    of_the_grader.__module__ = "workings.grading.made_up"
    of_the_grader("3.5"), of_another("3.5")
    memories = text_memories(OUR_MODULES)
    for forget in memories:
        forget()
    assert of_the_grader.cache_info().currsize == 0
    assert of_another.cache_info().currsize == 1
    assert len(memories) > 1


# ------------------------------------------------------------------------------------- the results


def outcomes_of(accepted: Sequence[bool], *, seconds: float = 0.01) -> list[Any]:
    from grading_runner import Outcome

    return [Outcome(one, seconds) for one in accepted]


def measured_of(**changes: Any) -> Any:
    from grading_pairs import ADVERSARIAL, RESTYLED, Pair
    from grading_peers import MATH_VERIFY, OURS
    from grading_results import Measured, Rates

    def pair(kind: str, expected: bool, **fields: Any) -> Pair:
        return Pair(id="x", kind=kind, gold="5", response="5", expected=expected, **fields)

    mix = [pair("gold itself", True), pair(RESTYLED, True, style="in bold"), pair("y", False)]
    bombs = [pair(ADVERSARIAL, False), pair("z", True, debatable=True)]
    outcomes = {
        OURS: {"mix": outcomes_of([True, True, False]), "bombs": outcomes_of([False, False])},
        MATH_VERIFY: {
            "mix": outcomes_of([True, False, True], seconds=0.05),
            "bombs": outcomes_of([False, True], seconds=5.0),
        },
    }
    fields = {
        "sets": {"mix": mix, "bombs": bombs},
        "outcomes": outcomes,
        "shared_sets": {"mix": mix, "bombs": bombs},
        "shared_outcomes": outcomes,
        "rounds": {name: [found["mix"]] * 3 for name, found in outcomes.items()},
        "mix": "mix",
        "bombs": "bombs",
        "workers": Rates(num_pairs=7, one=[100.0, 110.0, 90.0], two=[180.0, 190.0, 170.0]),
        "import_seconds": [0.2, 0.25, 0.21],
        "load": 0.123,
    }
    return Measured(**(fields | changes))


def test_errors_are_counted_without_the_debatable() -> None:
    from grading_results import score

    measured = measured_of()
    found = score(measured.sets["mix"], measured.outcomes["math-verify"]["mix"])
    assert (found.num_pairs, found.num_false_positives, found.num_false_negatives) == (3, 1, 1)
    assert found.accuracy == pytest.approx(100 / 3)
    assert score(measured.sets["bombs"], measured.outcomes["math-verify"]["bombs"]).num_pairs == 1


def test_results_hold_the_promises_and_every_grader() -> None:
    from grading_results import collect

    content = collect(measured_of(), command="c", absent=["mathruler"])
    rows = {row["name"]: row for row in content["results"]}
    speed = rows["grades per second, one process"]
    assert (speed["value"], speed["peer_value"]) == (pytest.approx(100), pytest.approx(20))
    assert speed["ratio"] == pytest.approx(5)
    accuracy = rows["accuracy on mix"]
    assert (accuracy["value"], accuracy["n"]) == (100, 3)
    assert accuracy["note"] == "FP 0, FN 0; math-verify FP 1, FN 1"
    workers = rows["grades per second with two workers, pairs for the expression tier"]
    assert (workers["value"], workers["ratio"]) == (180, pytest.approx(1.8))
    assert rows["longest time of an adversarial case"]["peer_value"] == 5
    assert rows["adversarial: over 2 s, by math-verify"]["value"] == 2
    assert rows["typographic variants accepted: math-verify, by in bold (1)"]["value"] == 0
    assert rows["time to import grade"]["value"] == 0.21
    assert content["versions"]["mathruler"] == "not installed"
    assert content["machine"]["load_before"] == 0.12


def test_full_stops_are_told_apart() -> None:
    from grading_results import notes

    measured = measured_of()
    told = notes(measured)
    assert any("3 pairs, Workings has 100 % right and math-verify 33.33 %" in n for n in told)
    first, second, third = measured.sets["mix"]
    mix = [first, replace(second, style="with a full stop"), third]
    told = notes(measured_of(sets={"mix": mix, "bombs": measured.sets["bombs"]}))
    assert any("2 pairs, Workings has 100 % right and math-verify 50 %" in line for line in told)


def test_the_report_shows_tables_by_grader_in_full_only() -> None:
    import report
    from grading_results import collect

    file = collect(measured_of(), command="c")
    full = report.describe(file, heading="##", in_full=True)
    assert "| math-verify | 33.33 % (1/1) | 100 % (0/0) |" in full
    assert "| in bold (1) | 100 % | 0 % |" in full
    assert "How they are called: Workings: default policy" in full
    short = report.describe(file, heading="###")
    assert "accuracy on mix" in short
    assert "in bold" not in short


def test_results_without_pairs_for_workers_have_no_row_for_them() -> None:
    from grading_results import collect

    names = [row["name"] for row in collect(measured_of(workers=None), command="c")["results"]]
    assert not [name for name in names if "two workers" in name]


def test_an_unknown_grader_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from grading import main

    with pytest.raises(SystemExit):
        main(["--graders", "nobody"])
    assert "unknown grader nobody; there are Workings, math-verify" in capsys.readouterr().err


def test_the_benchmark_runs(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grading

    monkeypatch.setenv("WORKINGS_DATA_DIR", str(shared_data))
    monkeypatch.setattr(grading, "CASES", {})
    monkeypatch.setattr(grading, "DATASETS", {"Minerva": ("minerva_math", None)})
    options = ["--quick", "--repeats", "1", "--graders", "math-verify", "--out", str(tmp_path)]
    assert grading.main(options) == 0
    content = json.loads((tmp_path / "grading.json").read_text())
    rows = {row["name"]: row for row in content["results"]}
    assert rows["accuracy on MATH-500 and GSM8K"]["value"] == 100
    assert rows["grades per second, one process"]["value"] > 0
    assert (tmp_path / "wrong.jsonl").is_file()


def test_a_missing_data_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import grading

    monkeypatch.setenv("WORKINGS_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit, match="set WORKINGS_DATA_DIR"):
        grading.read_sets(quick=False)
