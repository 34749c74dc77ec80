"""What must hold for every answer: equality's own laws, styling, digits, constructions, threads."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grading_forms import (
    EQUAL_PAIRS,
    FORMS,
    OUTER_STYLES,
    STYLES,
    Form,
    filled_forms,
    neighbours,
)
from workings.data.loading import load_problems
from workings.grading.grader import Grader
from workings.grading.policy import ExtractionPolicy, GradingPolicy
from workings.types import Verdict

BAD_GOLDS = Path(__file__).parents[2] / "cases" / "bad_golds.json"
SAME_AFTER_A_DIGIT = Path(__file__).parents[2] / "cases" / "same_after_a_digit.json"
"""Golds with a digit that changes nothing, by "data set/row", each with the reason."""

SIGNED = {"integer", "fraction", "decimal", "root", "pi", "percent", "unit", "price", "decay"}
"""Forms whose negative is written with a minus in front."""

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
"""The same examples on every run, so that a failure is a change of the grader and not of luck."""


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(num_workers=1) as grader:
        yield grader


@st.composite
def styles(draw: st.DrawFn) -> list[str]:
    inner = draw(
        st.lists(st.sampled_from(sorted(set(STYLES) - set(OUTER_STYLES))), max_size=3, unique=True)
    )
    return inner + draw(st.lists(st.sampled_from(OUTER_STYLES), max_size=1))


def styled(text: str, names: list[str]) -> str:
    for name in names:
        text = STYLES[name](text)
    return text


# Equality is reflexive.


@relaxed
@given(filled=filled_forms())
def test_every_answer_equals_itself(grader: Grader, filled: tuple[Form, tuple[str, ...]]) -> None:
    form, slots = filled
    text = form.fill(slots)
    assert grader.compare(text, text).correct, text


@pytest.mark.parametrize("policy", ["boxed", "tag"])
def test_every_gold_of_the_data_sets_equals_itself(
    shared_data: Path, policy: ExtractionPolicy
) -> None:
    """All of them, but for those of the table of bad golds, which names each with its reason."""
    frame = {"boxed": "So the answer is $\\boxed{@}$.", "tag": "Done.\n<answer> @ </answer>"}[
        policy
    ]
    golds = golds_of(shared_data)
    known = json.loads(BAD_GOLDS.read_text(encoding="utf-8"))
    assert len(golds) > 40_000
    with Grader(GradingPolicy(extraction=policy), num_workers=2) as grader:
        distinct = list(dict.fromkeys(golds.values()))
        grades = grader.grade_batch([frame.replace("@", gold) for gold in distinct], distinct)
    verdicts = dict(zip(distinct, (grade.verdict for grade in grades), strict=True))
    failed = {row for row, gold in golds.items() if verdicts[gold] is not Verdict.EQUAL}
    assert failed == set(known)


def test_every_bad_gold_is_listed_with_the_reason_that_loading_gives(
    shared_data: Path, grader: Grader
) -> None:
    golds = golds_of(shared_data)
    known = json.loads(BAD_GOLDS.read_text(encoding="utf-8"))
    found = {row: grader.check_gold(gold) for row, gold in golds.items()}
    bad = {row: reason for row, reason in found.items() if reason is not None}
    assert set(bad) == set(known)
    for row, reason in known.items():
        assert bad[row].startswith(reason), row


def golds_of(folder: Path) -> dict[str, str]:
    """The gold of each row of each data set, by "data set/row"; "" where loading drops the row."""
    golds: dict[str, str] = {}
    for path in sorted(folder.glob("*.parquet")):
        loaded = load_problems(path, bad_gold="drop")
        kept = {problem.id: problem.answer for problem in loaded.items}
        missing = loaded.total - len(kept)
        named = (f"{path.stem}/{row}" for row in range(loaded.total))
        golds |= {row if "/" in row else f"{path.stem}/{row}": gold for row, gold in kept.items()}
        if missing:
            golds |= {row: "" for row in named if row not in kept}
        assert missing == sum(loaded.dropped.values()), path.name
    return golds


def good_golds_of(folder: Path) -> dict[str, str]:
    """The distinct golds that can be graded against, by the first row that has them."""
    known = json.loads(BAD_GOLDS.read_text(encoding="utf-8"))
    rows: dict[str, str] = {}
    for row, gold in golds_of(folder).items():
        if row not in known:
            rows.setdefault(gold, row)
    return {row: gold for gold, row in rows.items()}


@pytest.mark.slow
def test_no_gold_of_the_data_sets_is_equal_after_a_digit_changes(shared_data: Path) -> None:
    golds = good_golds_of(shared_data)
    changed = {}
    for row, gold in golds.items():
        random = Random(row)
        places = [match.start() for match in re.finditer(r"[0-9]", gold)]
        if places:
            place = random.choice(places)
            digit = random.choice([other for other in "123456789" if other != gold[place]])
            changed[row] = gold[:place] + digit + gold[place + 1 :]
    assert len(changed) > 8000
    with Grader(num_workers=2) as grader:
        grades = grader.compare_batch(list(changed.values()), [golds[row] for row in changed])
    same = {row for row, grade in zip(changed, grades, strict=True) if grade.correct}
    assert same == set(json.loads(SAME_AFTER_A_DIGIT.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_styling_keeps_every_gold_of_the_data_sets_equal(shared_data: Path) -> None:
    golds = good_golds_of(shared_data)
    answers = {row: STYLES[Random(row).choice(list(STYLES))](gold) for row, gold in golds.items()}
    with Grader(num_workers=2) as grader:
        grades = grader.compare_batch(list(answers.values()), list(golds.values()))
    lost = [row for row, grade in zip(golds, grades, strict=True) if not grade.correct]
    assert not lost, [(row, answers[row][:80]) for row in lost]


# Equality is symmetric, but for the rules that tell a gold from an answer: rounding (a decimal gold
# accepts the exact value that rounds to it, and no exact gold a short decimal), and a curve whose
# right side is given (2x+1 accepts y=2x+1, not the other way round).


@pytest.mark.parametrize("kind", EQUAL_PAIRS)
def test_equality_is_symmetric(grader: Grader, kind: str) -> None:
    @settings(relaxed, max_examples=25)
    @given(pair=EQUAL_PAIRS[kind])
    def both_ways(pair: tuple[str, str]) -> None:
        one, other = pair
        assert grader.compare(one, other).correct == grader.compare(other, one).correct, pair

    both_ways()


@relaxed
@given(pair=neighbours())
def test_difference_is_symmetric(grader: Grader, pair: tuple[str, str]) -> None:
    one, other = pair
    assert not grader.compare(other, one).correct, pair


@relaxed
@given(filled=filled_forms(), other=filled_forms())
def test_answers_of_two_kinds_are_told_apart_both_ways(
    grader: Grader, filled: tuple[Form, tuple[str, ...]], other: tuple[Form, tuple[str, ...]]
) -> None:
    one, two = (form.fill(slots) for form, slots in (filled, other))
    assume("decimal" not in (filled[0].name, other[0].name))
    assert grader.compare(one, two).correct == grader.compare(two, one).correct, (one, two)


# Styling changes nothing.


@settings(relaxed, max_examples=150)
@given(filled=filled_forms(), names=styles())
def test_styling_keeps_an_answer_equal(
    grader: Grader, filled: tuple[Form, tuple[str, ...]], names: list[str]
) -> None:
    form, slots = filled
    text = form.fill(slots)
    answer = styled(text, names)
    grade = grader.grade(f"Hence the answer is \\boxed{{{answer}}}", text)
    assert grade.correct, (text, answer, grade)


@settings(relaxed, max_examples=100)
@given(pair=neighbours(), names=styles())
def test_styling_makes_nothing_equal(
    grader: Grader, pair: tuple[str, str], names: list[str]
) -> None:
    gold, other = pair
    answer = styled(other, names)
    assert not grader.grade(f"Hence the answer is \\boxed{{{answer}}}", gold).correct, (
        gold,
        answer,
    )


@pytest.mark.parametrize("style", STYLES)
def test_each_style_keeps_each_form_equal(grader: Grader, style: str) -> None:
    texts = [form.fill(("2", "4", "7", "9")[: form.num_slots]) for form in FORMS]
    answers = [STYLES[style](text) for text in texts]
    for golds, others in ((texts, answers), (answers, texts)):
        grades = grader.compare_batch(others, golds)
        assert [
            (gold, answer, grade.verdict)
            for gold, answer, grade in zip(golds, others, grades, strict=True)
            if not grade.correct
        ] == []


# A digit decides.


@settings(relaxed, max_examples=300)
@given(pair=neighbours())
def test_no_answer_is_equal_after_a_digit_changes(grader: Grader, pair: tuple[str, str]) -> None:
    gold, answer = pair
    assert not grader.compare(answer, gold).correct, pair


@relaxed
@given(
    number=st.integers(10**15, 10**60),
    position=st.integers(0, 14),
    digit=st.sampled_from("0123456789"),
)
def test_long_integers_differ_in_every_digit(
    grader: Grader, number: int, position: int, digit: str
) -> None:
    text = str(number)
    index = len(text) - 1 - position
    answer = text[:index] + digit + text[index + 1 :]
    assert grader.compare(f"{int(answer):,}", text).correct == (answer == text)


@relaxed
@given(filled=filled_forms())
def test_no_answer_is_equal_to_its_negative(
    grader: Grader, filled: tuple[Form, tuple[str, ...]]
) -> None:
    form, slots = filled
    assume(
        form.name in ("integer", "fraction", "decimal", "root", "pi", "percent", "unit", "decay")
    )
    text = form.fill(slots)
    assert not grader.compare(f"-{text}", text).correct
    assert not grader.compare(text, f"-{text}").correct


# Equal by construction.


@pytest.mark.parametrize("kind", EQUAL_PAIRS)
def test_pairs_equal_by_construction_are_equal(grader: Grader, kind: str) -> None:
    @settings(relaxed, max_examples=40)
    @given(pair=EQUAL_PAIRS[kind])
    def equal(pair: tuple[str, str]) -> None:
        gold, answer = pair
        grade = grader.compare(answer, gold)
        assert grade.correct, (gold, answer, grade)

    equal()


@relaxed
@given(
    values=st.lists(st.integers(-99, 99), min_size=1, max_size=6, unique=True),
    extra=st.integers(-99, 99),
)
def test_one_element_more_or_less_is_different(
    grader: Grader, values: list[int], extra: int
) -> None:
    assume(extra not in values)
    few, many = (",".join(map(str, each)) for each in (values, [*values, extra]))
    assert not grader.compare(rf"\{{{many}\}}", rf"\{{{few}\}}").correct
    assert not grader.compare(rf"\{{{few}\}}", rf"\{{{many}\}}").correct
    assert not grader.compare(many.replace(",", r" \text{ or } "), few).correct


@relaxed
@given(point=st.lists(st.integers(-9, 9), min_size=2, max_size=4), shift=st.integers(1, 3))
def test_the_order_of_a_tuple_counts(grader: Grader, point: list[int], shift: int) -> None:
    turned = point[shift % len(point) :] + point[: shift % len(point)]
    one, other = (f"({', '.join(map(str, each))})" for each in (point, turned))
    assert grader.compare(other, one).correct == (point == turned)


@relaxed
@given(
    low=st.integers(-9, 9), size=st.integers(1, 9), ends=st.permutations(["[]", "[)", "(]", "()"])
)
def test_the_ends_of_an_interval_count(
    grader: Grader, low: int, size: int, ends: list[str]
) -> None:
    one, other = (f"{end[0]}{low},{low + size}{end[1]}" for end in ends[:2])
    assert not grader.compare(one, other).correct


# The verdict does not depend on who asks.


def _some_pairs() -> list[tuple[str, str]]:
    numbers = ("12", "35", "8", "3")
    changed = ("12", "36", "8", "3")
    pairs = []
    for form in FORMS[::2]:
        gold = form.fill(numbers[: form.num_slots])
        pairs += [(gold, gold), (form.fill(changed[: form.num_slots]), gold)]
    return [
        *pairs,
        (r"2\sin x\cos x", r"\sin 2x"),
        (r"(x-1)(x+1)", "x^2-1"),
        (r"\sqrt{12}", r"2\sqrt{3}"),
        (r"9^{9^{9^{9}}}", "5"),
        ("", "5"),
    ]


def test_the_verdict_is_the_same_from_threads_asyncio_and_a_batch(grader: Grader) -> None:
    pairs = _some_pairs()
    answers, golds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected = [grader.compare(answer, gold).verdict for answer, gold in pairs]
    assert len(set(expected)) > 1

    async def ask(forgetful: Grader) -> list[Verdict]:
        grades = await asyncio.gather(
            *(asyncio.to_thread(forgetful.compare, answer, gold) for answer, gold in pairs)
        )
        return [grade.verdict for grade in grades]

    with Grader(num_workers=2, cache_size=0) as forgetful, ThreadPoolExecutor(4) as threads:
        in_threads = [grade.verdict for grade in threads.map(forgetful.compare, answers, golds)]
        in_asyncio = asyncio.run(ask(forgetful))
        in_a_batch = [grade.verdict for grade in forgetful.compare_batch(answers, golds)]
    assert in_threads == in_asyncio == in_a_batch == expected
