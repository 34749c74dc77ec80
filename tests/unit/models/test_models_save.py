"""A saved policy: which files, and that plain transformers and peft read them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny import CHAT_TEMPLATE, tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models.lora import add_lora
from workings.models.save import save_policy, save_tokenizer

TOKENIZER = tiny_tokenizer()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("tied", [True, False])
def test_M170_a_full_model_is_a_hugging_face_folder(tmp_path: Path, tied: bool) -> None:
    model = tiny_model(TOKENIZER, tied=tied)
    save_policy(model, TOKENIZER, tmp_path, trained=True)
    assert files(tmp_path) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert (again.lm_head.weight is again.model.embed_tokens.weight) == tied
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.chat_template == CHAT_TEMPLATE


def test_M170_a_lora_policy_is_its_adapter_and_the_tokenizer(tmp_path: Path) -> None:
    policy = add_lora(
        tiny_model(TOKENIZER), rank=2, alpha=2, dropout=0.0, targets=["q_proj"], seed=0
    )
    save_policy(policy, TOKENIZER, tmp_path, trained=False)
    assert files(tmp_path) == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    with pytest.raises(ModelError, match="all zero after training"):
        save_policy(policy, TOKENIZER, tmp_path / "b", trained=True)


def test_a_chat_template_that_does_not_arrive_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tiny_tokenizer()
    monkeypatch.setattr(tokenizer, "save_pretrained", lambda folder: None)
    with pytest.raises(ModelError, match=r"no chat_template\.jinja"):
        save_tokenizer(tokenizer, tmp_path)
    plain = tiny_tokenizer(chat_template=None)
    save_tokenizer(plain, tmp_path)
    assert not (tmp_path / "chat_template.jinja").exists()
