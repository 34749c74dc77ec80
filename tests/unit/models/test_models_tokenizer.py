"""Tokenizers: what is set, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny import CHAT_TEMPLATE, save_tiny, tiny_tokenizer
from workings.errors import ModelError
from workings.models.source import resolve_source
from workings.models.tokenizer import load_tokenizer, load_tokenizer_with_notes


def edit_settings(folder: Path, **changes: object) -> None:
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | changes
    file.write_text(
        json.dumps({key: value for key, value in settings.items() if value is not None})
    )


def test_a_tokenizer_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(save_tiny(tmp_path)))
    own = tiny_tokenizer()
    assert tokenizer.encode("hello.m <|im_end|>") == own.encode("hello.m <|im_end|>")
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|pad|>")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.clean_up_tokenization_spaces is False


def test_A2_without_a_pad_token_eos_pads_and_the_report_says_so(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    edit_settings(folder, pad_token=None)
    loaded = load_tokenizer_with_notes(
        resolve_source(str(folder)), chat_template=None, trust_remote_code=False
    )
    assert loaded.tokenizer.pad_token_id == loaded.tokenizer.eos_token_id
    assert loaded.notes == (
        "pad token: the tokenizer has none, so EOS (<|im_end|>) pads; masks come from lengths, so "
        "EOS is still learnt",
    )


def test_without_eos_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    edit_settings(folder, eos_token=None)
    with pytest.raises(ModelError, match="no EOS token") as caught:
        load_tokenizer(str(folder))
    assert "eos_token" in str(caught.value.hint)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    for file in folder.glob("token*"):
        file.unlink()
    with pytest.raises(ModelError, match="holds no tokenizer") as caught:
        load_tokenizer(str(folder))
    assert "base model" in str(caught.value.hint)


def test_a_broken_tokenizer_names_its_folder(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot load the tokenizer of"):
        load_tokenizer(str(folder))


def test_D5_a_chat_template_is_replaced_by_text_or_file(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    text = "{% for m in messages %}it's \"{{ m['content'] }}\"\n{% endfor %}"
    file = tmp_path / "own.jinja"
    file.write_text(text)
    for given in (text, str(file)):
        tokenizer = load_tokenizer(str(folder), chat_template=given)
        turn = [{"role": "user", "content": "a{b}\\"}]
        assert tokenizer.apply_chat_template(turn, tokenize=False) == 'it\'s "a{b}\\"\n'
    with pytest.raises(ModelError, match="neither Jinja text"):
        load_tokenizer(str(folder), chat_template="missing.jinja")


def word_tokenizer(folder: Path, *, family: str, known: bool = True) -> Path:
    """A folder of a model of that family whose tokenizer knows the words w0, w1, ... alone."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<unk>": 0, "<eos>": 1} | {f"w{number}": 2 + number for number in range(300)}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    if known:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<eos>"}))
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return folder


def test_a_class_that_reads_no_word_gives_way_to_the_file(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = word_tokenizer(tmp_path, family="qwen2")
    by_family = AutoTokenizer.from_pretrained(folder)
    assert by_family.encode("w5 w6 w77", add_special_tokens=False) == []
    loaded = load_tokenizer_with_notes(
        resolve_source(str(folder)), chat_template=None, trust_remote_code=False
    )
    assert loaded.tokenizer.encode("w5 w6 w77") == [7, 8, 79]
    assert loaded.notes[0].startswith(
        "tokenizer: tokenizer.json as it stands, since Qwen2Tokenizer, which transformers takes"
    )


def test_a_tokenizer_that_reads_none_of_its_words_is_refused(tmp_path: Path) -> None:
    folder = word_tokenizer(tmp_path, family="llama", known=False)
    with pytest.raises(ModelError, match="makes nothing of words from its own vocabulary"):
        load_tokenizer(str(folder))
