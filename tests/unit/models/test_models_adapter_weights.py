"""The adapter as two factors: together with the base they are the merged weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models.adapter_weights import (
    adapter_rank,
    named_adapter_weights,
    named_base_shapes,
    named_base_weights,
    write_adapter,
)
from workings.models.load import load_model
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights

TARGETS = ("q_proj", "down_proj")


def adapted(*, rank: int = 4, alpha: float = 6.0) -> Any:
    model = tiny_model(tiny_tokenizer())
    policy = add_lora(model, rank=rank, alpha=alpha, dropout=0.0, targets=TARGETS, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return policy


def test_base_and_factors_make_the_merged_weights() -> None:
    policy = adapted()
    merged = dict(named_full_weights(policy))
    base, factors = dict(named_base_weights(policy)), dict(named_adapter_weights(policy))
    assert set(base) == set(merged)
    assert len(factors) == 2 * 2 * len(TARGETS)
    for name in [name for name in factors if name.endswith(".lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight")
        update = factors[f"{module}.lora_B.weight"] @ factors[name]
        torch.testing.assert_close(base[f"{module}.weight"] + update, merged[f"{module}.weight"])
    untouched = [name for name in base if not any(target in name for target in TARGETS)]
    assert all(torch.equal(base[name], merged[name]) for name in untouched)


def test_the_folder_is_read_by_peft_and_gives_the_same_logits(tmp_path: Path) -> None:
    from peft import PeftModel

    policy = adapted()
    write_adapter(tmp_path, named_adapter_weights(policy))
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (4, 4)
    assert settings["target_modules"] == sorted(TARGETS)
    again = PeftModel.from_pretrained(tiny_model(tiny_tokenizer()), tmp_path)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, policy(ids).logits)


def test_the_files_hold_peft_names(tmp_path: Path) -> None:
    write_adapter(tmp_path, named_adapter_weights(adapted()))
    names = load_file(tmp_path / "adapter_model.safetensors")
    assert all(name.startswith("base_model.model.model.layers.") for name in names)


def test_rank() -> None:
    assert adapter_rank(adapted(rank=8)) == 8


def test_a_policy_without_adapter_is_refused() -> None:
    with pytest.raises(ModelError, match="the policy has no adapter"):
        list(named_adapter_weights(tiny_model(tiny_tokenizer())))


def test_an_adapter_that_is_merged_in_place_is_refused() -> None:
    policy = adapted()
    policy.merge_adapter()
    with pytest.raises(ModelError, match="cannot be sent as two factors: it is merged in place"):
        list(named_adapter_weights(policy))


def test_dora_is_refused() -> None:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)
    policy = get_peft_model(tiny_model(tiny_tokenizer()), config)
    with pytest.raises(ModelError, match="DoRA"):
        list(named_adapter_weights(policy))


def test_nothing_to_write_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no adapter tensors"):
        write_adapter(tmp_path, iter(()))


def test_a_quantised_base_comes_whole_with_the_shapes_of_a_plain_one(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    tokenizer = tiny_tokenizer()
    plain = tiny_model(tokenizer, width=64)
    plain.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), quantization="4bit", dtype="float32", weights="arithmetic")
    policy = add_lora(loaded.model, rank=4, alpha=6.0, dropout=0.0, targets=TARGETS, seed=1)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".lora_B." in name:
                parameter.normal_()
    merged = dict(named_full_weights(policy))
    base, factors = dict(named_base_weights(policy)), dict(named_adapter_weights(policy))
    for name in [name for name in factors if name.endswith(".lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight")
        update = factors[f"{module}.lora_B.weight"] @ factors[name]
        torch.testing.assert_close(base[f"{module}.weight"] + update, merged[f"{module}.weight"])
    assert dict(named_base_shapes(policy)) == dict(named_base_shapes(plain))
