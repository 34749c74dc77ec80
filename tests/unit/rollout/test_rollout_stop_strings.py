"""Stop strings: found across tokens, inside tokens, behind multi-byte text, at bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tiny import tiny_model, tiny_tokenizer
from workings.data.templates import load_template, template_names
from workings.errors import EngineError
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.paged.engine import PagedEngine
from workings.rollout.stop_strings import StopStrings, decode_all
from workings.rollout.transformers_engine import TransformersEngine

TINY = tiny_tokenizer()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, as a byte-level BPE without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


def first_stop(tokenizer: Any, ids: Sequence[int], stops: Sequence[str]) -> int | None:
    """Number of tokens after which a stop string was reported."""
    matcher = StopStrings(tokenizer, stops)
    for length in range(1, len(ids) + 1):
        if matcher.completed_by_last(ids[:length]):
            return length
    return None


def by_full_decoding(tokenizer: Any, ids: Sequence[int], stops: Sequence[str]) -> int | None:
    for length in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:length], skip_special_tokens=True)
        if any(stop in text for stop in stops):
            return length
    return None


def test_a_stop_string_is_found_at_the_token_that_completes_it() -> None:
    ids = TINY.encode("x</answer> more")
    assert first_stop(TINY, ids, ["</answer>"]) == len("x</answer>")


def test_A17d_a_stop_string_that_ends_inside_a_token_is_found_with_that_token() -> None:
    hello = TINY.convert_tokens_to_ids("hello")
    ids = [*TINY.encode("ab"), hello, *TINY.encode("c")]
    assert first_stop(TINY, ids, ["bhe"]) == 3
    assert first_stop(TINY, ids, ["ell"]) == 3
    assert first_stop(TINY, ids, ["oc"]) == 4
    assert first_stop(TINY, ids, ["hellox"]) is None


def test_special_tokens_between_the_parts_do_not_hide_a_stop_string() -> None:
    ids = [*TINY.encode("a"), *[TINY.pad_token_id] * 40, *TINY.encode("bc")]
    assert first_stop(TINY, ids, ["abc"]) == len(ids)


@pytest.mark.parametrize("stop", ["<|im_start|>", "so\n<|im_start|>user", "<|pad|>"])
def test_a_stop_string_with_a_special_token_is_refused(stop: str) -> None:
    ids = [*TINY.encode("so\n"), TINY.convert_tokens_to_ids("<|im_start|>")]
    assert "<|im_start|>" not in TINY.decode(ids, skip_special_tokens=True)
    with pytest.raises(EngineError) as raised:
        StopStrings(TINY, ["</answer>", stop], eos_token_ids=[TINY.eos_token_id])
    assert raised.value.message.startswith(f"the stop string {stop!r} holds the special token '<|")
    assert raised.value.hint is not None
    assert "eos_token_id" in raised.value.hint


def test_a_stop_string_with_an_eos_is_taken_and_so_is_an_added_word() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<think>"])
    eos = [tokenizer.eos_token_id]
    StopStrings(tokenizer, ["<|im_end|>", "<|im_end|>\n<|im_start|>"], eos_token_ids=eos)
    with pytest.raises(EngineError, match=r"holds the special token '<\|im_end\|>'"):
        StopStrings(tokenizer, ["<|im_end|>"], eos_token_ids=[5])
    assert first_stop(tokenizer, tokenizer.encode("a<think>b"), ["<think>"]) == 2


@pytest.mark.parametrize("name", template_names())
def test_the_stop_strings_of_shipped_templates_are_taken(name: str) -> None:
    template = load_template(name)
    matcher = StopStrings(TINY, template.stop)
    for stop in template.stop:
        assert matcher.completed_by_last(TINY.encode(stop))


@pytest.mark.parametrize("kind", [TransformersEngine, PagedEngine])
def test_engines_refuse_a_stop_string_that_they_would_never_find(kind: Any) -> None:
    engine = kind(tiny_model(TINY), TINY, eos_token_ids=[TINY.eos_token_id])
    request = Request(prompt_ids=(30,))
    with pytest.raises(EngineError, match="would never be found"):
        engine.submit([request], SamplingParams(max_tokens=2, stop=("<|im_start|>",)))
    sampling = SamplingParams(max_tokens=2, stop=("<|im_end|>",))
    assert len(engine.generate([request], sampling)[0]) == 1
    engine.close()


@pytest.mark.parametrize("stop", ["é", "né", "€uro", "日本", "🙂"])
def test_characters_that_are_spread_over_byte_tokens_are_found(stop: str) -> None:
    tokenizer = byte_tokenizer()
    text = f"some ünïcode before {stop}"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    assert first_stop(tokenizer, [*ids, *tokenizer.encode(" after")], [stop]) == len(ids)


@given(
    text=st.text(alphabet="ab </>é€", max_size=40),
    stops=st.lists(st.text(alphabet="ab </>é€", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_the_window_finds_what_decoding_everything_finds(text: str, stops: list[str]) -> None:
    for tokenizer in (byte_tokenizer(),):
        ids = tokenizer.encode(text)
        expected = by_full_decoding(tokenizer, ids, stops)
        assert first_stop(tokenizer, ids, stops) == expected


def test_a_stop_string_completed_earlier_is_not_reported_again() -> None:
    """The caller asks only from min_tokens on; what ended before must not end it then."""
    ids = TINY.encode("ab bb")
    matcher = StopStrings(TINY, ["ab"])
    assert matcher.completed_by_last(ids[:2])
    assert not matcher.completed_by_last(ids[:4])
    assert not matcher.completed_by_last(ids)


def test_the_cost_of_a_token_does_not_grow_with_the_completion() -> None:
    class Counting:
        def __init__(self) -> None:
            self.longest = 0
            self.calls = 0

        def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
            self.longest = max(self.longest, len(ids))
            self.calls += 1
            text: str = TINY.decode(ids, skip_special_tokens=skip_special_tokens)
            return text

    counting = Counting()
    matcher = StopStrings(counting, ["</answer>"])  # type: ignore[arg-type]
    ids: list[int] = []
    for token in TINY.encode("no tag here, 3 > 2. " * 100):
        ids.append(token)
        assert not matcher.completed_by_last(ids)
    assert counting.longest <= 4 * (len("</answer>") + 1)
    assert counting.calls < 250, "only tokens that can end the string are decoded"


def test_no_stop_strings_cost_nothing() -> None:
    assert not StopStrings(TINY, []).completed_by_last([5, 6])


@given(st.lists(st.lists(st.integers(0, len(TINY) - 1), max_size=9), max_size=6))
def test_many_rows_are_decoded_as_one_by_one(rows: list[list[int]]) -> None:
    wanted = [TINY.decode(row, skip_special_tokens=True) for row in rows]
    assert decode_all(TINY, rows) == wanted


def test_a_tokenizer_that_does_more_than_its_backend_is_asked_row_by_row() -> None:
    class Shouting:
        backend_tokenizer = TINY.backend_tokenizer

        def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
            return str(TINY.decode(ids, skip_special_tokens=skip_special_tokens)).upper()

    rows = [TINY.encode("hello"), TINY.encode("me")]
    assert decode_all(Shouting(), rows) == ["HELLO", "ME"]  # type: ignore[arg-type]


def test_a_tokenizer_without_a_backend_is_asked_row_by_row() -> None:
    class Plain:
        def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
            return "".join(map(str, ids))

    assert decode_all(Plain(), [[1, 2], [3]]) == ["12", "3"]  # type: ignore[arg-type]
