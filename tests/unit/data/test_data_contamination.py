"""Overlaps of training rows with benchmarks, against a brute-force search and on real data."""

from __future__ import annotations

import random
import re
import unicodedata
from pathlib import Path

import pytest
from pyarrow import parquet

from workings.data.choices import with_options
from workings.data.contamination import (
    ContaminationIndex,
    Overlap,
    OverlapRule,
    benchmark_questions,
    ngrams,
    words_of,
)
from workings.data.contamination_report import ContaminationReport
from workings.data.preparation.questions import normalised, question_key
from workings.data.training_texts import choices_offered, training_text
from workings.errors import ConfigError, DataError


def index_of(questions: list[str], name: str = "bench", **rule: float) -> ContaminationIndex:
    benchmark = benchmark_questions(name, map(str, range(len(questions))), questions)
    return ContaminationIndex([benchmark], OverlapRule(**rule))  # type: ignore[arg-type]


def kinds(found: list[Overlap]) -> dict[str, str]:
    return {overlap.question_id: overlap.kind for overlap in found}


# ------------------------------------------------------------------------------------- brute force


def found_by_force(
    text: str, questions: list[str], n: int, min_words: int
) -> dict[str, tuple[str, float]]:
    """The same by comparing every text with every question, position by position."""

    def plain(text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text).casefold()
        return [w for w in re.split(r"[\W_]+", text) if w]

    def stands_in(run: list[str], words: list[str]) -> bool:
        return any(words[i : i + len(run)] == run for i in range(len(words) - len(run) + 1))

    words = plain(text)
    found = {}
    for number, question in enumerate(questions):
        asked = plain(question)
        runs = [asked[i : i + n] for i in range(len(asked) - n + 1)]
        distinct = {tuple(run) for run in runs}
        shared = sum(stands_in(list(run), words) for run in distinct)
        if normalised(text) == normalised(question):
            found[str(number)] = ("exact", 1.0)
        elif len(asked) < n and len(asked) >= min_words and stands_in(asked, words):
            found[str(number)] = ("whole", 1.0)
        elif shared:
            found[str(number)] = ("ngram", shared / len(distinct))
    return found


def test_the_index_finds_what_a_brute_force_search_finds() -> None:
    """Letters only, so that words of both searches are split at the same places."""
    draw = random.Random(5)
    vocabulary = "abcdefg"
    seen: set[str] = set()
    for _ in range(150):
        n, min_words = draw.choice([(3, 2), (4, 3), (5, 1), (4, 9)])

        def text(longest: int) -> str:
            return " ".join(draw.choice(vocabulary) for _ in range(draw.randrange(1, longest)))

        questions = list(dict.fromkeys(text(9) for _ in range(6)))
        index = index_of(questions, n=n, min_words=min_words)
        for _ in range(6):
            row = draw.choice(
                [text(14), draw.choice(questions) + ".", "x " + draw.choice(questions)]
            )
            found = {o.question_id: (o.kind, o.share) for o in index.look_up(row)}
            expected = found_by_force(row, questions, n, min(min_words, n))
            assert found.keys() == expected.keys()
            for key, (kind, share) in expected.items():
                assert found[key] == (kind, pytest.approx(share))
                seen.add(kind)
    assert seen == {"exact", "whole", "ngram"}


def test_real_sets_against_a_brute_force_search(shared_data: Path) -> None:
    """A part of the 8k of MATH level 3 to 5 against 120 problems of MATH-500."""
    train = parquet.read_table(shared_data / "math_lvl3to5_8k.parquet")["problem"].to_pylist()
    bench = parquet.read_table(shared_data / "math500.parquet")["problem"].to_pylist()[:120]
    index = index_of(bench)
    split = [(row, index.look_up(row)) for row in train[200:1400]]
    hits = [(row, found) for row, found in split if found]
    assert hits
    for row, found in hits + split[:40]:
        expected = found_by_words(row, bench)
        assert {o.question_id for o in found} == expected.keys()
        for overlap in found:
            assert overlap.share == pytest.approx(expected[overlap.question_id])


def found_by_words(text: str, questions: list[str]) -> dict[str, float]:
    """Shares of 13-grams by sets of tuples; exact copies do not occur in these two sets."""
    grams = {tuple(g.split()) for g in ngrams(words_of(text), 13)}
    found = {}
    for number, question in enumerate(questions):
        words = words_of(question)
        own = {tuple(words[i : i + 13]) for i in range(len(words) - 12)}
        if own & grams:
            found[str(number)] = len(own & grams) / len(own)
        elif 8 <= len(words) < 13 and " ".join(words) in " ".join(words_of(text)):
            found[str(number)] = 1.0
    return found


# -------------------------------------------------------------------------------------- real data


def questions_in(shared_data: Path, name: str) -> list[str]:
    column: list[str] = parquet.read_table(shared_data / f"{name}.parquet")["problem"].to_pylist()
    return column


def test_the_8k_of_math_holds_most_of_the_test_set_but_none_of_math500(shared_data: Path) -> None:
    """What its card says: it overlaps with MATH test, MATH-500 left out."""
    train = questions_in(shared_data, "math_lvl3to5_8k")
    math500 = questions_in(shared_data, "math500")
    others = questions_in(shared_data, "math_test_minus500")
    report = ContaminationReport(
        ContaminationIndex(
            [
                benchmark_questions("math500", map(str, range(len(math500))), math500),
                benchmark_questions("others", map(str, range(len(others))), others),
            ],
            OverlapRule(),
        )
    )
    for number, question in enumerate(train):
        report.add(f"row {number}", question)
    found = report.as_dict()["benchmarks"]
    assert isinstance(found, dict)
    same = {normalised(question) for question in train}
    exact = [sum(normalised(q) in same for q in set_) for set_ in (math500, others)]
    assert exact == [0, found["others"]["questions_by_kind"]["exact"]]
    assert found["math500"]["questions_by_kind"] == {"exact": 0, "whole": 0, "ngram": 68}
    assert found["math500"]["ngram_questions_by_least_share"]["0.5"] == 19
    assert exact[1] == 2937


def test_gsm8k_shares_no_question_between_train_and_test(shared_data: Path) -> None:
    index = index_of(questions_in(shared_data, "gsm8k_test"))
    found = [o for q in questions_in(shared_data, "gsm8k_train") for o in index.look_up(q)]
    assert {overlap.kind for overlap in found} <= {"ngram"}
    assert max((overlap.share for overlap in found), default=0) < 1


# ------------------------------------------------------------------------------ short and written


def test_short_questions_are_not_found_in_everything() -> None:
    long = "Show that the sum of the first n odd numbers is a square, and find it for n equal to 7."
    index = index_of(["Compute $\\sin 60^\\circ$.", "Find the sum of the first n odd numbers."])
    assert kinds(index.look_up("Compute $\\sin 60^\\circ$ and $\\cos 60^\\circ$.")) == {}
    assert kinds(index.look_up("compute \\(\\sin 60^\\circ\\)")) == {"0": "exact"}
    assert kinds(index.look_up(f"{long} Find the sum of the first n odd numbers! Now.")) == {
        "1": "whole"
    }
    assert kinds(index.look_up(long)) == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (r"Find $\dfrac{1}{2}+x$.", r"find \(\frac{1}{2} + x\)", True),
        (r"Evaluate $\left( 2, 3 \right)$!", "Evaluate $(2,3)$", True),
        ("It costs \\$5 a day.", "It costs $5 a day", True),
        (r"Let $x \leftarrow 3$.", r"Let $x arrow 3$.", False),
        ("Find $x+1$.", "Find $x-1$.", False),
        ("Find $12$.", "Find $1 2$.", True),  # white space in LaTeX means nothing
        ("\ufb01nd \uff11", "find 1", True),
    ],
)
def test_which_questions_are_the_same(one: str, other: str, same: bool) -> None:
    assert (question_key(one) == question_key(other)) is same


def test_chinese_characters_are_words() -> None:
    assert words_of("小明有12个苹果") == ["小", "明", "有", "12", "个", "苹", "果"]
    question = "小明有12个苹果，吃掉3个，还剩多少个？"
    assert kinds(index_of([question]).look_up(f"题目：{question}请回答。")) == {"0": "ngram"}


def test_a_least_share_leaves_common_phrases_out() -> None:
    phrase = "where m and n are relatively prime positive integers find m plus n in the end"
    question = f"The area of a triangle with sides three four five is a fraction m over n {phrase}"
    row = f"A fair coin is flipped nine times and the chance of two heads is m over n {phrase}"
    (found,) = index_of([question]).look_up(row)
    assert found.kind == "ngram"
    assert 0 < found.share < 0.5
    assert index_of([question], min_share=0.5).look_up(row) == []


def test_responses_are_looked_through_where_asked() -> None:
    question = "How many apples has the farmer left after he sold all but seven of his nine crates?"
    index = index_of([question])
    assert index.look_up("Tell me a joke.") == []
    assert kinds(index.look_up("Tell me a joke.", more=f"Sure: {question} Two.")) == {"0": "ngram"}


def test_repeated_questions_of_a_benchmark_count_once() -> None:
    benchmark = benchmark_questions("b", ["1", "2", "3"], ["Find x.", "find  x", "Find y."])
    assert benchmark.ids == ("1", "3")
    with pytest.raises(DataError, match="has no questions"):
        benchmark_questions("b", ["1"], [" "])


def test_a_report_counts_rows_and_questions_and_shows_ids_only() -> None:
    report = ContaminationReport(index_of(["Find x.", "Find y."]), num_examples=1)
    for number, question in enumerate(["find x", "Find x!", "Find z.", None]):
        report.add(f"row {number}", question)
    told = report.as_dict()
    assert (told["rows"], told["rows_overlapping"], told["rows_without_question"]) == (4, 2, 1)
    (bench,) = told["benchmarks"].values()  # type: ignore[attr-defined]
    assert bench["questions_found"] == 1
    assert bench["rows_by_kind"] == {"exact": 2, "whole": 0, "ngram": 0}
    assert bench["examples"] == {"exact": [{"row": "row 0", "question": "0", "share": 1.0}]}
    assert report.lines()[1].split()[:4] == ["bench", "2", "1", "(50.0%)"]


@pytest.mark.parametrize("rule", [{"n": 1}, {"min_words": 0}, {"min_share": 1.5}])
def test_a_rule_that_cannot_be(rule: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        OverlapRule(**rule)  # type: ignore[arg-type]


def test_questions_of_training_rows_in_every_schema() -> None:
    user, reply = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
    rows: list[dict[str, object]] = [
        {"problem": "2+2?", "generated_solution": "4"},
        {"prompt": [{"role": "system", "content": "s"}, user], "target": [reply]},
        {"messages": [user, reply]},
        {"instruction": "2+2?", "output": "4"},
    ]
    assert [training_text(row) for row in rows] == [("2+2?", "4")] * 4
    assert training_text({"text": "plain"}) == (None, "plain")
    assert training_text({"q": "2+2?", "problem": "no"}, column="q").question == "2+2?"


# --------------------------------------------------------------------------------- multiple choice

STEM = "How many positive integers are factors of both 120 and 40?"
CHOICES = ["four of them", "eight of them", "sixteen of them", "none at all"]


def test_a_question_of_multiple_choice_is_compared_with_its_choices() -> None:
    index = index_of([with_options(STEM, CHOICES), with_options(STEM, ["1", "2"])])
    assert kinds(index.look_up(STEM, options=CHOICES))["0"] == "exact"
    assert "1" not in kinds(index.look_up(STEM, options=CHOICES))
    assert kinds(index.look_up(with_options(STEM, CHOICES)))["0"] == "exact"


def test_choices_in_another_order_are_the_same() -> None:
    index = index_of([with_options(STEM, CHOICES), with_options("What is it?", CHOICES)])
    assert kinds(index.look_up(STEM, options=CHOICES[::-1])) == {"0": "exact"}
    assert kinds(index.look_up(with_options(STEM, sorted(CHOICES)))) == {"0": "exact"}
    others = [*CHOICES[:3], "all of them"]
    assert kinds(index.look_up(STEM, options=others[::-1])).get("0") != "exact"


def test_one_side_without_choices_is_the_question_all_the_same() -> None:
    index = index_of([with_options(STEM, CHOICES)])
    assert kinds(index.look_up(STEM)) == {"0": "exact"}
    bare = index_of([STEM])
    assert kinds(bare.look_up(STEM, options=CHOICES)) == {"0": "exact"}
    assert kinds(bare.look_up(with_options(STEM, CHOICES))) == {"0": "exact"}


def test_a_short_question_says_nothing_without_its_choices() -> None:
    short = "Which of these is true?"
    index = index_of([with_options(short, CHOICES)])
    assert index.look_up(short) == []
    assert index.look_up(short, options=["one", "two"]) == []
    assert kinds(index.look_up(short, options=CHOICES)) == {"0": "exact"}
    assert index_of([short]).look_up(with_options(short, CHOICES)) == []


def test_choices_stand_in_columns_of_a_usual_name() -> None:
    assert choices_offered({"options": None, "choices": ["a", "b"]}) == ("a", "b")
    assert choices_offered({"options": "A) 5 B) 6"}) == ("5", "6")
    assert choices_offered({"problem": "2+2?"}) == ()
    with pytest.raises(DataError, match="the options"):
        choices_offered({"options": {"text": 7}})
