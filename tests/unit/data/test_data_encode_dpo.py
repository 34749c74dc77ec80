"""Preference pairs from a file to token ids: prompts as everywhere, EOS, limits, counts."""

from __future__ import annotations

import json

import pytest

from tiny import tiny_tokenizer
from workings.data.encoding import (
    encode_demonstrations,
    encode_preference,
    encode_preferences,
    encode_prompts,
)
from workings.data.lengths import limit_pairs
from workings.data.loading import load_preferences
from workings.data.templates import load_template
from workings.errors import DataError
from workings.types import Demonstration, PreferencePair, Problem

TOKENIZER = tiny_tokenizer(add_bos=True)
EOS = TOKENIZER.eos_token_id
ROWS = [("1+1?", "2", "three"), ("hello", "hello.m", "no"), ("<|im_end|>?", "a", "b")]


def pairs_of(*rows):
    return [
        PreferencePair(id=f"s/{n}", question=question, chosen=chosen, rejected=rejected)
        for n, (question, chosen, rejected) in enumerate(rows)
    ]


@pytest.mark.parametrize("name", ["own", "alpaca", "r1_zero", "question_only"])
def test_dpo_prompt_ids_are_those_of_sft_and_of_rollouts(name):
    template = load_template(name)
    pairs = encode_preferences(pairs_of(*ROWS), template, TOKENIZER).items
    asked = encode_prompts(
        [Problem(id=str(n), question=row[0], answer="") for n, row in enumerate(ROWS)],
        template,
        TOKENIZER,
    ).items
    for place, side in ((1, "chosen"), (2, "rejected")):
        taught = encode_demonstrations(
            [
                Demonstration(id=str(n), question=row[0], response=row[place])
                for n, row in enumerate(ROWS)
            ],
            template,
            TOKENIZER,
        ).items
        for pair, demonstration, prompt in zip(pairs, taught, asked, strict=True):
            found = getattr(pair, side)
            assert found.prompt.ids == prompt.ids == demonstration.prompt.ids
            assert found.response_ids == demonstration.response_ids
            assert found.response_ids[-1] == EOS
            assert pair.chosen.prompt.ids == pair.rejected.prompt.ids


def test_dpo_pairs_that_spell_a_control_token_are_counted():
    more = [*ROWS, ("q", "fine", "typed <|bos|>")]
    encoded = encode_preferences(pairs_of(*more), load_template("own"), TOKENIZER)
    assert encoded.num_with_special_text == 2
    assert [pair.pair.id for pair in encoded.items] == ["s/0", "s/1", "s/2", "s/3"]


def test_dpo_a_response_cut_when_encoding_has_no_eos():
    pair = encode_preference(
        pairs_of(ROWS[0])[0], load_template("own"), TOKENIZER, max_response_length=3
    )
    assert pair.chosen.response_ids[-1] == EOS
    assert (len(pair.rejected.response_ids), pair.rejected.truncated) == (3, True)
    assert EOS not in pair.rejected.response_ids


# ---------------------------------------------------------------------------------- limits


def encoded(*rows):
    return encode_preferences(pairs_of(*rows), load_template("question_only"), TOKENIZER).items


def test_dpo_a_pair_over_a_limit_goes_as_a_whole_and_is_counted():
    pairs = encoded(("q", "abc", "ab"), ("q", "ab", "abcdef"), ("long question", "a", "b"))
    limited = limit_pairs(pairs, max_prompt_length=6, max_response_length=4)
    assert [pair.pair.id for pair in limited.kept] == ["s/0"]
    assert (limited.num_dropped, limited.num_truncated, limited.limit) == (2, 0, 6)
    assert limited.longest == len(pairs[2].chosen.ids)


def test_dpo_truncation_cuts_each_side_by_itself_and_never_a_prompt():
    pairs = encoded(("q", "abc", "ab"), ("q", "ab", "abcdef"), ("long question", "a", "b"))
    limited = limit_pairs(pairs, max_prompt_length=6, max_response_length=4, on_overlong="truncate")
    first, second = limited.kept
    assert (limited.num_dropped, limited.num_truncated) == (1, 1)
    assert first == pairs[0]
    assert second.chosen == pairs[1].chosen
    assert second.rejected.response_ids == pairs[1].rejected.response_ids[:4]
    assert second.rejected.truncated


def test_dpo_a_percentile_limits_prompts():
    pairs = encoded(*(("q" * n, "a", "b") for n in range(1, 11)))
    limited = limit_pairs(pairs, percentile=50)
    assert len(limited.kept) == 5
    assert limited.limit == 6  # BOS and 5.5 characters, rounded down


def test_dpo_limits_that_nothing_fits_and_errors_name_the_row():
    pairs = encoded(("q", "abc", "abcdefg"))
    with pytest.raises(DataError, match="none of 1 pairs is within the limit of response 2"):
        limit_pairs(pairs, max_response_length=2)
    with pytest.raises(DataError, match=r"1 of 1 pairs are longer.*s/0, 2 \+ 4 and 8 tokens"):
        limit_pairs(pairs, max_response_length=5, on_overlong="error")
    with pytest.raises(DataError, match="no pairs to limit"):
        limit_pairs([])


# --------------------------------------------------------------------------------- loading


def test_dpo_pairs_are_loaded_with_columns_limit_and_name(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"ask": f"q{n}", "good": "a", "bad": "b"} for n in range(8)]
    file.write_text("\n".join(map(json.dumps, rows)))
    columns = {"question": "ask", "chosen": "good", "rejected": "bad"}
    loaded = load_preferences(file, name="mine", columns=columns, limit=3, seed=1)
    assert (len(loaded.items), loaded.total, loaded.dropped["over_limit"]) == (3, 8, 5)
    assert {pair.source for pair in loaded.items} == {"mine"}
    again = load_preferences(file, name="mine", columns=columns, limit=3, seed=1)
    assert again.items == loaded.items


def test_dpo_generated_tasks_have_no_pairs(tmp_path):
    with pytest.raises(DataError, match="arithmetic has problems but no pairs") as caught:
        load_preferences("arithmetic")
    assert "chosen and rejected" in caught.value.hint
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"prompt": "q", "chosen": "a", "rejected": "b"}))
    with pytest.raises(DataError, match=r"options \(terms\) are settings of a generated task"):
        load_preferences(file, options={"terms": 2})
