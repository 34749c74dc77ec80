"""Tokens: their texts, their colours, and the tokenizer that is found for them."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from viewer_files import write_jsonl, write_rollouts

from workings.errors import DataError, NotFound
from workings.viewer.rows import open_rows, read_rows
from workings.viewer.tokens import find_tokenizer, token_style, token_texts, tokens_html


def _byte_tokenizer() -> Tokenizer:
    """A byte-level tokenizer without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({one: place for place, one in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def _spaced_tokenizer() -> Tokenizer:
    """One whose decoder drops the space at the beginning of a text, as SentencePiece's does."""
    made = Tokenizer(models.WordLevel({"▁so": 0, "▁it": 1, "s": 2}, "s"))
    made.decoder = decoders.Metaspace()
    return made


def test_texts_add_up_to_the_text() -> None:
    tokenizer = _byte_tokenizer()
    text = "so 1+1\n= <b>2</b>"
    ids = tokenizer.encode(text).ids
    assert "".join(token_texts(ids, tokenizer)) == text
    assert token_texts(ids[:2], None) == [f"[{ids[0]}]", f"[{ids[1]}]"]


def test_a_space_at_the_beginning_is_kept() -> None:
    assert token_texts([0, 1, 2, 1], _spaced_tokenizer()) == ["so", " it", "s", " it"]


def test_html_is_escaped_and_says_what_is_known(tmp_path: Path) -> None:
    tokenizer = _byte_tokenizer()
    ids = tokenizer.encode("<b>\n").ids
    row = {"ids": ids, "advantage": 1.0, "mask": [True, True, False, True], "off_policy": None}
    row["sampling_logprobs"] = [-0.1, -2.0, math.nan, -9.0]
    for colour in ("logprob", "advantage", "mask"):
        shown = tokens_html(row, tokenizer, colour=colour)
        assert "<b>" not in shown
        text = html.unescape(re.sub(r"<[^>]+>", "", shown))
        assert text == "<b>↵\n"
    assert "log-probability -2.000, probability 0.135" in shown
    assert shown.count("not trained") == 1
    with pytest.raises(DataError, match="no tokens are stored"):
        tokens_html({"advantage": None}, tokenizer, colour="mask")


def _style(colour: str, logprob: float = -1.0, **more) -> str:
    known = {"trained": True, "off_policy": False, "advantage": 1.0}
    return token_style(colour, logprob, **(known | more))


def test_colours() -> None:
    strengths = [float(_style("logprob", x).rsplit(",", 1)[1][:-1]) for x in (0.0, -1, -5, -50)]
    assert strengths == [0.0, 0.14, 0.7, 0.7]
    assert _style("logprob", math.nan) == "opacity:0.45"
    assert _style("advantage") != _style("advantage", advantage=-1.0)
    assert _style("advantage", trained=False) == _style("advantage", advantage=None)
    masks = {_style("mask"), _style("mask", trained=False), _style("mask", off_policy=True)}
    assert len(masks) == 3


def test_the_tokenizer_beside_the_run(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    rollouts = write_rollouts(root / "grpo/rollouts/step_000001.parquet", [[1.0]])
    name = rollouts.relative_to(root).as_posix()
    assert find_tokenizer(root, name) is None
    outside = tmp_path / "model"
    outside.mkdir()
    _byte_tokenizer().save(str(outside / "tokenizer.json"))
    (root / "grpo/final").symlink_to(outside)  # leads out of the root: not followed
    assert find_tokenizer(root, name) is None
    (root / "grpo/best").mkdir()
    _byte_tokenizer().save(str(root / "grpo/best/tokenizer.json"))
    row = read_rows(open_rows(rollouts), [0], tokens=True)[0]
    found = find_tokenizer(root, name)
    assert tokens_html(row, found, colour="mask").count("<span") == 3
    given = find_tokenizer(root, name, outside)
    assert given.get_vocab_size() == 256
    with pytest.raises(NotFound):
        find_tokenizer(root, name, tmp_path / "none")
    broken = write_jsonl(tmp_path / "broken.json", [])
    with pytest.raises(DataError, match="cannot be read"):
        find_tokenizer(root, name, broken)
