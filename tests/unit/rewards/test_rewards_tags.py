"""The four tag rewards: every worked example in every profile, and properties of random text."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workings.data.tags import Tags, tag_response
from workings.errors import ConfigError, DataError
from workings.rewards.tag_profiles import ProfileName
from workings.rewards.tag_text import first_numeral, formatted_solution
from workings.rewards.tags import TagRewards

TAGS = Tags()
B, E, S, Z = TAGS.reasoning_start, TAGS.reasoning_end, TAGS.solution_start, TAGS.solution_end
EOS = "<|endoftext|>"
W = f"work{E}"
PROFILES: tuple[ProfileName, ...] = ("contract", "unsloth", "grpo-tests")


def block(answer: str) -> str:
    return f"{W}{S}{answer}{Z}"


DOCUMENTED = f"{B}\nwork\n{E}\n{S}\n34\n{Z}"

# row, completion, gold, scores under contract, totals under unsloth and grpo-tests
ROWS = [
    ("1", block("34"), "34", [3, 1.5, 5, 3], 13.0, 10.5),
    ("2", B + block("34"), "34", [3, 1.5, 5, 3], 13.0, 13.5),
    ("3", DOCUMENTED, "34", [3, 1.5, 5, 3], 11.5, 10.5),
    ("4", DOCUMENTED + EOS, "34", [3, 1.5, 5, 3], 11.5, 10.5),
    ("5a", block("34.0"), "34", [3, 1.5, 2, 3], 10.0, 7.5),
    ("5b", block("34."), "34", [3, 1.5, 2, 3], 10.0, 7.5),
    ("6", block("3 4"), "34", [3, 1.5, 3.5, -1.5], -1.5, 3.0),
    ("7", block("31"), "34", [3, 1.5, 2, -1.5], 5.0, 6.0),
    ("8", block("28"), "34", [3, 1.5, 1.5, -1.5], 4.5, 4.5),
    ("9", block("37.4"), "34", [3, 1.5, 2, -1.5], 5.0, 6.0),
    ("10", block("27.2"), "34", [3, 1.5, -2, -1.5], 0.5, -3.0),
    ("11a", block("7"), "34", [3, 1.5, -2, -1.5], 0.5, -3.0),
    ("11b", block("-34"), "34", [3, 1.5, -2, -1.5], 0.5, -3.0),
    ("12a", block("none"), "34", [3, 1.5, -2, -1.5], -2.5, -2.5),
    ("12b", block(" "), "34", [3, 1.5, -2, -1.5], -2.5, -2.5),
    ("13", block(""), "34", [0, 1.5, -2, -1.5], -3.0, -2.5),
    ("14a", block(r"\boxed{34}"), "34", [3, 1.5, -2, 3], 3.5, 3.0),
    ("14b", block("$34"), "34", [3, 1.5, -2, 3], 3.5, 3.0),
    ("14c", block("x = 34"), "34", [3, 1.5, -2, 3], 3.5, 3.0),
    ("14d", block("The answer is 34"), "34", [3, 1.5, -2, 3], 3.5, 3.0),
    ("15", block("Ans. 34"), "34", [3, 1.5, -2, 0], 0.0, 3.0),
    ("16a", "no tags at all", "34", [0, -3, -2, -1.5], -7.5, -6.5),
    ("16b", "", "34", [0, -3, -2, -1.5], -7.5, -6.5),
    ("17", W, "34", [0, -1.5, -2, -1.5], -6.0, -5.0),
    ("18", f"{W}{S}34", "34", [0, 0, -2, 3], 1.5, -3.5),
    ("19", f"work{S}34{Z}", "34", [0, 0, -2, 3], 1.5, 9.0),
    ("20", f"work{E}{E}{S}{S}7{Z}{Z}", "34", [3, -3, -2, -1.5], -6.0, -7.5),
    ("21", f"work{E}{E}{S}{S}34{Z}{Z}", "34", [3, -3, -2, 3], -1.0, -1.5),
    ("22", f"{W}{S}7{Z} {S}34{Z}", "34", [3, -1.5, -2, -1.5], -4.5, -6.0),
    ("23", f"{W}{S}7{Z}\n{S}34{Z}", "34", [3, -1.5, -2, -1.5], -2.5, -6.0),
    ("24", block("34") + " done", "34", [0, 1.5, -2, 3], 3.0, 10.5),
    ("25", block("34") + "\ndone", "34", [3, 1.5, 5, 3], 13.0, 10.5),
    ("26", f"work{S}34{Z}{E}", "34", [0, 1.5, -2, 3], 3.0, 10.5),
    ("27", f"{S}34{Z}{W}{S}7{Z}", "34", [3, -1.5, -2, 3], 2.5, 7.5),
    ("28a", block("1,234"), "1234", [3, 1.5, -2, 3], 3.5, -3.0),
    ("28b", block("1,2"), "12", [3, 1.5, -2, 3], 3.5, -3.0),
    ("29", block("1,234"), "1,234", [3, 1.5, 5, 3], 9.5, 5.0),
    ("30", block("1234"), "1,234", [3, 1.5, -2, 3], 0.0, -2.5),
    ("31", block("0"), "0", [3, 1.5, 5, 3], 13.0, 10.5),
    ("32", block("0.0"), "0", [3, 1.5, 2, 3], 3.5, 10.5),
    ("33", block("3"), "0", [3, 1.5, -2, -1.5], -1.5, -3.0),
    ("34a", block("nan"), "34", [3, 1.5, -2, -1.5], -0.5, -2.5),
    ("34b", block("inf"), "34", [3, 1.5, -2, -1.5], -0.5, -2.5),
    ("35a", block("1/2"), "1/2", [3, 1.5, 5, 0], 9.5, 5.0),
    ("35b", block(r"\frac{1}{2}"), r"\frac{1}{2}", [3, 1.5, 5, 0], 9.5, 5.0),
    ("36a", block("0.5"), "1/2", [3, 1.5, -2, 0], 0.0, -2.5),
    ("36b", block("2/4"), "1/2", [3, 1.5, -2, 0], 0.0, -2.5),
    ("37", block("−5"), "-5", [3, 1.5, -2, -1.5], -1.5, -3.0),
    ("38", block("abc"), "abc", [3, 1.5, 5, -1.5], 7.0, 5.0),
]

RANGES = [(0.0, 3.0), (-3.0, 1.5), (-2.0, 5.0), (-1.5, 3.0)]
VALUES = [
    {0.0, 3.0},
    {-3.0, -1.5, 0.0, 1.5},
    {-2.0, 1.5, 2.0, 3.5, 5.0},
    {-1.5, 0.0, 3.0},
]
GOLDS = ["34", "0", "-5", "1,234", "1/2", "", " ", "nan", "inf", "-inf", "1e3", "abc", "9" * 400]


def scores(
    text: str, gold: str, profile: ProfileName = "contract", tags: Tags = TAGS, eos: str = EOS
) -> list[float]:
    rewards = TagRewards(tags=tags, profile=profile, eos_token=eos)
    return [f(["q"], [text], [gold])[0] for f in rewards.functions().values()]


@pytest.mark.parametrize(
    ("row", "text", "gold", "contract", "unsloth", "grpo_tests"), ROWS, ids=[r[0] for r in ROWS]
)
def test_D1_worked_examples(
    row: str, text: str, gold: str, contract: list[float], unsloth: float, grpo_tests: float
) -> None:
    assert scores(text, gold) == contract
    assert sum(scores(text, gold, "unsloth")) == pytest.approx(unsloth, abs=1e-12)
    assert sum(scores(text, gold, "grpo-tests")) == pytest.approx(grpo_tests, abs=1e-12)


def random_text(rng: random.Random) -> str:
    parts = [B, E, S, Z, EOS, "34", "-5", "1,234", "0", "28", ".", ",", "-", " ", "\n", "nan", "x"]
    return "".join(rng.choice(parts) for _ in range(rng.randrange(12)))


def test_D2_random_texts_stay_in_range_and_reach_both_ends() -> None:
    rng = random.Random(0)
    rewards = TagRewards(eos_token=EOS)
    texts = [random_text(rng) for _ in range(100_000)]
    golds = [rng.choice(GOLDS) for _ in texts]
    columns = [f(texts, texts, golds) for f in rewards.functions().values()]
    for column, values, (low, high) in zip(columns, VALUES, RANGES, strict=True):
        assert set(column) <= values
        assert (min(column), max(column)) == (low, high)
    totals = [sum(row) for row in zip(*columns, strict=True)]
    assert (min(totals), max(totals)) == (-6.5, 12.5)


@pytest.mark.parametrize("profile", ["unsloth", "grpo-tests"])
def test_random_texts_give_finite_scores_in_the_other_profiles(profile: ProfileName) -> None:
    rng = random.Random(1)
    low, high = (-7.5, 13.0) if profile == "unsloth" else (-7.5, 13.5)
    for _ in range(5_000):
        total = sum(scores(random_text(rng), rng.choice(GOLDS), profile))
        assert low <= total <= high


def test_the_linear_scans_agree_with_the_regular_expressions() -> None:
    pattern = re.compile(
        f"{re.escape(E)}.*?{re.escape(S)}(.+?){re.escape(Z)}\\s*(?:{re.escape(EOS)})?\\s*$",
        re.MULTILINE | re.DOTALL,
    )
    numerals = re.compile(f"{re.escape(S)}.*?\\s*(-?[\\d.,]+)", re.MULTILINE | re.DOTALL)
    rng = random.Random(2)
    for _ in range(20_000):
        text = random_text(rng)
        match, numeral = pattern.search(text), numerals.search(text)
        assert formatted_solution(text, TAGS, EOS) == (match[1] if match else None), text
        assert first_numeral(text, TAGS, EOS) == (numeral[1] if numeral else None), text


@given(gold=st.text(min_size=1).filter(lambda text: text.strip() and "<" not in text))
@settings(max_examples=200, deadline=None)
def test_any_gold_in_the_documented_form_scores_full_marks_for_text(gold: str) -> None:
    assert scores(tag_response("work", gold, TAGS), gold)[:3] == [3.0, 1.5, 5.0]


@given(value=st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9),
                         max_value=10**9, places=3))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_plain_numeral_in_the_documented_form_scores_everything(value: object) -> None:
    assert sum(scores(tag_response("work", str(value), TAGS), str(value))) == 12.5


def test_renaming_the_tags_changes_nothing_even_with_regex_metacharacters() -> None:
    other = Tags(
        reasoning_start="(?:[", reasoning_end="]*+$", solution_start="^{|", solution_end="\\w)?"
    )
    names = {B: "(?:[", E: "]*+$", S: "^{|", Z: "\\w)?"}
    for _, text, gold, *_ in ROWS:
        renamed = re.sub("|".join(map(re.escape, names)), lambda m: names[m[0]], text)
        if "frac" in text or "boxed" in text:
            continue  # their backslash-w would be a tag
        assert scores(renamed, gold, tags=other) == scores(text, gold)


def test_a_repeated_start_tag_and_an_appended_eos_change_nothing() -> None:
    for _, text, gold, *_ in ROWS:
        assert scores(B + text, gold) == scores(text, gold)
        if EOS not in text:
            assert scores(text + EOS, gold) == scores(text, gold)


def test_the_order_and_size_of_a_batch_do_not_matter() -> None:
    rewards = TagRewards(eos_token=EOS)
    rows = [(text, gold) for _, text, gold, *_ in ROWS]
    for function in rewards.functions().values():
        single = [function(["q"], [text], [gold])[0] for text, gold in rows]
        backwards = function(
            ["q"] * len(rows), [row[0] for row in rows[::-1]], [row[1] for row in rows[::-1]]
        )
        assert list(backwards) == single[::-1]


def test_D4_messages_and_plain_strings_are_both_completions() -> None:
    rewards = TagRewards()
    text = block("34")
    forms = [text, [{"role": "assistant", "content": text}], [{"role": "assistant"}], []]
    prompts = [[{"role": "user", "content": "15 + 19?"}]] * 4
    assert rewards.check_answer(prompts, forms, ["34"] * 4, level=[1, 2, 3, 4]) == [5, 5, -2, -2]
    assert rewards.match_format_exactly(prompts, forms, ["34"] * 4) == [3, 3, 0, 0]
    assert rewards.check_numbers(prompts, forms, [34] * 4) == [3, 3, -1.5, -1.5]


def test_a_run_without_tags_averages_exactly_minus_six_and_a_half() -> None:
    texts = ["I do not know", "34", "", "so it is 34."]
    columns = [f(texts, texts, ["34"] * 4) for f in TagRewards().functions().values()]
    assert sum(map(sum, columns)) / 4 == -6.5


@pytest.mark.parametrize("piece", [E, S, Z, E + S, S + "34" + Z, Z + " ", Z + "\t", " " + EOS])
@pytest.mark.parametrize("profile", PROFILES)
def test_repeated_tags_take_linear_time(piece: str, profile: ProfileName) -> None:
    text = E + S + piece * (100_000 // len(piece)) + "x"
    start = time.process_time()
    scores(text, "34", profile)
    assert time.process_time() - start < 20.0  # a backtracking pattern needs minutes


def test_functions_keep_their_order_and_can_be_switched_off() -> None:
    rewards = TagRewards()
    assert list(rewards.functions()) == [
        "match_format_exactly",
        "match_format_approximately",
        "check_answer",
        "check_numbers",
    ]
    assert list(rewards.functions(use_format_exact=False, use_answer_check=False)) == [
        "match_format_approximately",
        "check_numbers",
    ]
    with pytest.raises(ConfigError, match="all four tag rewards are switched off"):
        rewards.functions(
            use_format_exact=False,
            use_format_approximate=False,
            use_answer_check=False,
            use_number_check=False,
        )


def test_bad_input_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown tag reward profile 'contrat'; did you mean"):
        TagRewards(profile="contrat")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the answer column has 2 entries for 1 completions"):
        TagRewards().check_answer(["q"], ["a"], ["1", "2"])
    with pytest.raises(DataError, match="the answer column has 1 entries"):
        TagRewards().check_numbers(["q"], ["a"], "34")
