"""The tables of the r1_zero and question_only rewards, row by row, and the defects of others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from workings.errors import DataError
from workings.grading.grader import Grader
from workings.grading.policy import GradingPolicy
from workings.rewards.r1_zero import (
    accepted_golds,
    choose_equality,
    question_only_reward_fn,
    r1_zero_reward_fn,
    read_response,
    score_answers,
)
from workings.rewards.strict_equality import same_form

RIGHT, WRONG, UNFORMATTED = (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)
ANSWER_ONLY = (0.0, 1.0, 0.0)
SOLUTION = "She sells 16 - 3 - 4 = 9 eggs, so 9 * 2 = 18 dollars.\n#### 18"


def T(answer: str) -> str:
    return f"some work </think> <answer>{answer}</answer>"


STRICT_ROWS = [
    (T("18"), "18", RIGHT, RIGHT),
    (T(" 18 "), "18", RIGHT, RIGHT),
    (T(r"\boxed{18}"), "18", RIGHT, RIGHT),
    (T(r"\$18"), "18", RIGHT, RIGHT),
    (T("19"), "18", WRONG, WRONG),
    (T(""), "18", WRONG, WRONG),
    (T(r"\boxed{18"), "18", WRONG, WRONG),
    (T(r"\boxed 18"), "18", WRONG, WRONG),
    ("work </think>\n<answer>18</answer>", "18", UNFORMATTED, UNFORMATTED),
    ("work </think><answer>18</answer>", "18", UNFORMATTED, UNFORMATTED),
    ("work </think>  <answer>18</answer>", "18", UNFORMATTED, UNFORMATTED),
    ("work </think> <answer>18", "18", UNFORMATTED, UNFORMATTED),
    ("work <answer>18</answer>", "18", UNFORMATTED, UNFORMATTED),
    (T("17") + " no: <answer>18</answer>", "18", RIGHT, RIGHT),
    (T("18") + " done", "18", WRONG, WRONG),
    ("</answer> </think> <answer>18", "18", RIGHT, RIGHT),
    (T("18"), SOLUTION, WRONG, RIGHT),
    (T("18"), 18, RIGHT, RIGHT),
    (T("18"), 18.0, RIGHT, RIGHT),
    (T("18"), "18.0", RIGHT, RIGHT),
    (T("18"), ["17", "18"], RIGHT, RIGHT),
    (T("18"), r"\boxed{18}", RIGHT, RIGHT),
    (T(r"\frac12"), "1/2", RIGHT, RIGHT),
    (T("0.5"), "1/2", RIGHT, RIGHT),
    (T("1,000"), "1000", RIGHT, RIGHT),
    (T("2/4"), "1/2", WRONG, RIGHT),
    (T("2^{10}"), "1024", WRONG, RIGHT),
    (T("50%"), "0.5", WRONG, RIGHT),
    (T("3,5"), "5,3", WRONG, RIGHT),
    (T("The answer is 5"), "5", WRONG, RIGHT),
    (T("[1,2]"), "(1,2)", WRONG, WRONG),
    (T("5 dollars"), "5", WRONG, WRONG),
]

QUESTION_ONLY_ROWS = [
    (r"so \boxed{18}", "18", RIGHT, RIGHT),
    (r"\boxed{17}, no, \boxed{18}", "18", RIGHT, RIGHT),
    (r"\boxed{19}", "18", WRONG, WRONG),
    (r"\boxed{18}, no, \boxed{19}", "18", WRONG, WRONG),
    (r"\boxed{}", "18", WRONG, WRONG),
    ("18", "18", UNFORMATTED, UNFORMATTED),
    (r"\boxed{18", "18", UNFORMATTED, UNFORMATTED),
    (r"\fbox{18}", "18", UNFORMATTED, UNFORMATTED),
    (r"\boxed 18", "18", UNFORMATTED, UNFORMATTED),
    (T("18"), "18", UNFORMATTED, UNFORMATTED),
    (r"\boxed{\frac{1}{2}}", "1/2", RIGHT, RIGHT),
    (r"\boxed{0.5}", "1/2", RIGHT, RIGHT),
    (r"\boxed{2/4}", "1/2", WRONG, RIGHT),
]

FOUR_CLASS_ROWS = [
    (T("18"), RIGHT, RIGHT),
    (T("19"), WRONG, WRONG),
    ("work </think>\n<answer>18</answer>", RIGHT, RIGHT),
    ("work </think><answer>18</answer>", UNFORMATTED, UNFORMATTED),
    (r"so \boxed{18}", ANSWER_ONLY, ANSWER_ONLY),
    ("18", ANSWER_ONLY, ANSWER_ONLY),
    ("The answer is 18", UNFORMATTED, ANSWER_ONLY),
    ("The answer is 19", UNFORMATTED, UNFORMATTED),
    (r"so \boxed{18", UNFORMATTED, UNFORMATTED),
]


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as one:
        yield one


@pytest.fixture(scope="module")
def hurried() -> Iterator[Grader]:
    with Grader(GradingPolicy(deadline_seconds=0.6)) as one:
        one.compare(r"x\cdot x", "x^2")  # starts the worker
        yield one


def numbers(result: dict[str, float]) -> tuple[float, float, float]:
    assert list(result) == ["format_reward", "answer_reward", "reward"]
    return result["format_reward"], result["answer_reward"], result["reward"]


@pytest.mark.parametrize(("response", "gold", "fast", "slow"), STRICT_ROWS)
def test_strict_table(
    response: str, gold: object, fast: object, slow: object, grader: Grader
) -> None:
    assert numbers(r1_zero_reward_fn(response, gold, fast=True, grader=grader)) == fast
    assert numbers(r1_zero_reward_fn(response, gold, fast=False, grader=grader)) == slow


@pytest.mark.parametrize(("response", "gold", "fast", "slow"), QUESTION_ONLY_ROWS)
def test_question_only_table(
    response: str, gold: object, fast: object, slow: object, grader: Grader
) -> None:
    assert numbers(question_only_reward_fn(response, gold, fast=True, grader=grader)) == fast
    assert numbers(question_only_reward_fn(response, gold, fast=False, grader=grader)) == slow


@pytest.mark.parametrize(("response", "fast", "slow"), FOUR_CLASS_ROWS)
def test_four_class_table(response: str, fast: object, slow: object, grader: Grader) -> None:
    for is_fast, expected in ((True, fast), (False, slow)):
        result = r1_zero_reward_fn(response, "18", is_fast, mode="four_class", grader=grader)
        assert numbers(result) == expected


def test_D6_a_gold_reduced_at_load_scores_1_both_fast_and_slow(grader: Grader) -> None:
    gold = SOLUTION.rpartition("####")[2].strip()
    for fast in (True, False):
        assert numbers(r1_zero_reward_fn(T("18"), gold, fast, grader=grader)) == RIGHT


@pytest.mark.parametrize("gold", [None, [18], [17, 18], True, [], {"answer": 18}])
def test_a_gold_that_is_no_text_is_refused(gold: object) -> None:
    with pytest.raises(DataError, match="gold answer"):
        r1_zero_reward_fn(T("18"), gold)


@pytest.mark.parametrize("gold", ["", "  ", r"\boxed{", r"\boxed{}", ["18", ""]])
def test_an_empty_or_unreadable_gold_is_refused(gold: object) -> None:
    with pytest.raises(DataError, match="empty or an unreadable box"):
        r1_zero_reward_fn(T(""), gold)


def test_the_message_says_what_came_and_what_to_do() -> None:
    with pytest.raises(DataError) as caught:
        accepted_golds([17, 18])
    assert str(caught.value) == (
        "gold answer [17, 18]: expected a text, a number or a list of texts\n\n"
        "hint: turn the gold column into text when the data set is loaded"
    )


def test_numpy_numbers_and_tuples_of_texts_are_golds() -> None:
    assert accepted_golds(np.int64(18)) == ["18"]
    assert accepted_golds(np.float32(0.5)) == ["0.5"]
    assert accepted_golds(("17", "18")) == ["17", "18"]


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("(c)", "(d)"),
        ("(a)", "(h)"),
        ("a+c", "g+h"),
        ("(1,234)", "1234"),
        (r"7\text{ g}", r"7\text{ kg}"),
        ("7 g", "7 kg"),
        ("2**3", "23"),
    ],
)
@pytest.mark.parametrize("fast", [True, False])
def test_false_positives_of_others_stay_wrong(
    answer: str, gold: str, fast: bool, grader: Grader
) -> None:
    assert numbers(r1_zero_reward_fn(T(answer), gold, fast, grader=grader)) == WRONG


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("2/4", "1/2"),
        (r"\{2,1\}", r"\{1,2\}"),
        ("2^{10}", "1024"),
        ("5!", "120"),
        (r"3\times10^4", "30000"),
        ("50%", "0.5"),
        ("−5", "-5"),
        (r"1\,000", "1000"),
        ("5 dollars", "5"),
    ],
)
def test_the_project_grader_finds_what_the_strict_rules_refuse(
    answer: str, gold: str, grader: Grader
) -> None:
    result = r1_zero_reward_fn(T(answer), gold, strict_compat=False, grader=grader)
    assert numbers(result) == RIGHT


@pytest.mark.parametrize("answer", ["9**9**9**9", "99999999!", "9^{9^{9^{9}}}", "(10^8)!"])
@pytest.mark.parametrize("fast", [True, False])
def test_A15a_bombs_cost_at_most_the_deadline(answer: str, fast: bool, hurried: Grader) -> None:
    grader = hurried
    start = time.monotonic()
    assert numbers(r1_zero_reward_fn(T(answer), "0.5", fast, grader=grader)) == WRONG
    assert numbers(r1_zero_reward_fn(T(answer), "7", True, grader=grader)) == WRONG
    assert time.monotonic() - start < grader.policy.deadline_seconds + 5.0


def test_A15b_the_verdict_is_the_same_off_the_main_thread_and_inside_asyncio(
    grader: Grader,
) -> None:
    def score() -> tuple[float, float, float]:
        return numbers(r1_zero_reward_fn(T(r"\sqrt{12}"), r"2\sqrt{3}", False, grader=grader))

    async def inside_asyncio() -> tuple[float, float, float]:
        return score()

    found = [score(), asyncio.run(inside_asyncio())]
    thread = threading.Thread(target=lambda: found.append(score()))
    thread.start()
    thread.join()
    assert found == [RIGHT, RIGHT, RIGHT]


def test_A14_answers_only_inside_thinking_do_not_count() -> None:
    assert numbers(question_only_reward_fn(r"<think>\boxed{5}</think> hm", "5")) == UNFORMATTED
    assert numbers(question_only_reward_fn(r"<think>\boxed{5}", "5")) == UNFORMATTED
    assert numbers(question_only_reward_fn(r"<think></think> \boxed{}", "5")) == WRONG


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"so </think> it is \boxed{5}", (1.0, 1.0)),
        (r"<think>so</think> it is \boxed{5}", (1.0, 1.0)),
        (r"so </think> it is \boxed{6}", (1.0, 0.0)),
        (r"so \boxed{5} </think> it is five", (0.0, 0.0)),
        (r"so it may be \boxed{5}", (0.0, 0.0)),
        (r"so </think> hm <think> \boxed{5}", (0.0, 0.0)),
        ("so </think> 5", (0.0, 0.0)),
    ],
)
def test_think_boxed_wants_the_box_after_a_closed_thought(
    response: str, expected: tuple[float, float], grader: Grader
) -> None:
    """LUFFY's reward; a thought that was cut off may hold a box, and is not paid for it."""
    (score,) = score_answers(
        [response],
        [["5"]],
        answer_format="think_boxed",
        mode="strict",
        equality=choose_equality(fast=True, strict_compat=True, grader=grader),
    )
    assert (score.format, score.answer) == expected
    assert score.reward == score.answer


def test_the_quickstart_path_starts_no_process_and_takes_microseconds() -> None:
    pairs = [(f" {a}+{b}={a + b} </think> <answer>{a + b}</answer>", str(a + b))
             for a in range(40) for b in range(40)]  # fmt: skip
    start = time.perf_counter()
    for response, gold in pairs:
        assert r1_zero_reward_fn(response, gold)["reward"] == 1.0
        assert r1_zero_reward_fn(response, gold + "1")["reward"] == 0.0
    per_call = (time.perf_counter() - start) / (2 * len(pairs))
    assert per_call < 500e-6  # about 30 on an idle core; a worker's start would take 0.6 s


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("18.0", "18", True),
        ("36/2", "18", False),
        ("18", "36/2", False),
        ("-1/2", r"-\frac{1}{2}", True),
        (r"\frac{-1}{2}", r"-\frac{1}{2}", True),
        ("0.50", r"\frac12", True),
        (".5", "0.5", True),
        ("(1,2)", "(2,1)", False),
        ("(1,0.5)", r"(1,\frac{1}{2})", True),
        ("(1,2)", "(1,2]", False),
        ("(1,2,3)", "(1,2)", False),
        ("x=5", "5", True),
        (r"5\text{ cm}", "5", True),
        (r"90^\circ", "90", True),
        ("even", "odd", False),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"x^2+2x+1", "(x+1)^2", None),
        ("x y + w", "w+x y", None),
        ("not a formula 2", "x+1", False),
    ],
)
def test_same_form(answer: str, gold: str, expected: bool | None) -> None:
    assert same_form(answer, gold) is expected


def test_exact_fractions_agree_with_python(grader: Grader) -> None:
    for numerator in range(-6, 7):
        for denominator in range(1, 7):
            gold = Fraction(numerator, denominator)
            if gold.denominator == 1:
                continue
            text = rf"\frac{{{numerator}}}{{{denominator}}}"
            reduced = gold.denominator == denominator
            assert same_form(text, str(gold)) is reduced


def test_an_unreadable_box_is_no_answer_and_an_open_one_no_format() -> None:
    assert read_response(T(r"\boxed{18"), "r1_zero", "strict").answer is None
    assert not read_response(r"\boxed{18", "question_only", "strict").format_right
