"""Quantised bases: what is computed with is what is merged, nothing in the base moves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tiny import save_tiny, tiny_model, tiny_tokenizer
from workings.errors import ConfigError, ModelError
from workings.models.bits_and_bytes import quantization_of
from workings.models.export import export_model
from workings.models.load import load_model
from workings.models.lora import BASE_QUANTIZATION, add_lora, save_adapter
from workings.models.restore import restore_policy
from workings.models.save import save_policy
from workings.models.weights import base_model, merged_state, named_full_weights

KINDS = ("4bit", "8bit")
IDS = torch.tensor([[5, 9, 20, 33, 7, 8]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, width=64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def quantized_policy(folder: Path, kind: Any, *, dtype: str = "float32", seed: int = 0) -> Any:
    loaded = load_model(str(folder), quantization=kind, dtype=dtype, weights="arithmetic")
    policy = add_lora(
        loaded.model, rank=3, alpha=5, dropout=0.0, targets=["q_proj", "down_proj"], seed=seed
    )
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".lora_" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return policy.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(input_ids=IDS).logits
    return output


def with_weights(folder: Path, weights: dict[str, torch.Tensor]) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
def test_the_linear_layers_are_codes_and_the_rest_is_whole(folder: Path, kind: Any) -> None:
    loaded = load_model(str(folder), quantization=kind)
    model = loaded.model
    assert quantization_of(model) == kind
    layer = model.model.layers[0]
    dtype = torch.uint8 if kind == "4bit" else torch.int8
    assert layer.self_attn.q_proj.weight.dtype == dtype
    assert layer.mlp.down_proj.weight.dtype == dtype
    assert model.get_input_embeddings().weight.dtype == torch.float32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert layer.input_layernorm.weight.dtype == torch.float32
    assert any(f"{kind[0]} bits, frozen" in line for line in loaded.report)
    plain = load_model(str(folder))
    # The count is that of the model, not of its packed codes.
    assert loaded.report[0].split(",")[1] == plain.report[0].split(",")[1]


@pytest.mark.parametrize("kind", KINDS)
def test_merged_weights_compute_what_the_quantised_policy_computes(folder: Path, kind: Any) -> None:
    policy = quantized_policy(folder, kind)
    merged = with_weights(folder, merged_state(policy))
    # In inference an int8 layer rounds its inputs too, in training on a CPU it does not.
    ours = logits(policy.train() if kind == "8bit" else policy)
    assert torch.allclose(ours, logits(merged), atol=2e-5)
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert not torch.allclose(ours, logits(whole.eval()), atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_dequantised_weights_lie_within_the_grid_of_the_whole_ones(folder: Path, kind: Any) -> None:
    weights = dict(named_full_weights(load_model(str(folder), quantization=kind).model))
    whole = load_model(str(folder)).model.state_dict()
    assert set(weights) == set(whole) - {"lm_head.weight"}
    for name, weight in weights.items():
        assert weight.shape == whole[name].shape
        assert weight.dtype == torch.float32
        gap = (weight - whole[name]).abs()
        if "proj" not in name:
            assert gap.max() == 0
        elif kind == "8bit":
            rows = whole[name].abs().amax(1, keepdim=True)
            # Half a step of the grid, and the rounding to float16 before it.
            assert (gap <= rows * (1 / 127 / 2 + 2**-11)).all()
        else:
            # NF4 is spaced most widely at its lower end, by 0.304 of the block's largest weight;
            # the rest is the rounding of the scale.
            largest = whole[name].abs().reshape(-1, 64).amax(1)
            assert (gap.reshape(-1, 64).amax(1) <= 0.18 * largest).all()
            assert gap.mean() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_steps_through_a_quantised_base_move_the_adapter_alone(folder: Path, kind: Any) -> None:
    policy = quantized_policy(folder, kind).train()
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for _ in range(5):
        loss = policy(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        merged_state(policy.eval())
        policy.train()
    assert losses[-1] < losses[0]
    for name, tensor in policy.state_dict().items():
        if ".lora_" in name:
            assert not tensor.equal(before[name])
        elif name in before:  # the scales of int8 layers move from weight to layer in their place
            assert tensor.equal(before[name])


def test_the_gradient_is_that_of_the_dequantised_base(folder: Path) -> None:
    policy = quantized_policy(folder, "4bit")
    whole = load_model(str(folder)).model
    whole.load_state_dict(dict(named_full_weights(base_of(folder))), strict=False)
    twin = add_lora(whole, rank=3, alpha=5, dropout=0.0, targets=["q_proj", "down_proj"], seed=0)
    values = dict(policy.named_parameters())
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if ".lora_" in name:
                parameter.copy_(values[name])
    for model in (policy, twin):
        model.train()
        model(input_ids=IDS, labels=IDS).loss.backward()
    for name, parameter in twin.named_parameters():
        if ".lora_" in name:
            assert torch.allclose(values[name].grad, parameter.grad, atol=1e-5)


def base_of(folder: Path) -> Any:
    return load_model(str(folder), quantization="4bit").model


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_comes_back_on_the_base_it_was_trained_on(
    folder: Path, kind: Any, tmp_path: Path
) -> None:
    policy = quantized_policy(folder, kind)
    save_adapter(policy, tmp_path / "adapter", trained=True)
    again = load_model(str(tmp_path / "adapter"))
    assert quantization_of(again.model) == kind
    assert logits(again.model).equal(logits(policy))
    whole = load_model(str(tmp_path / "adapter"), quantization="none")
    assert quantization_of(whole.model) == "none"
    assert not torch.allclose(logits(whole.model), logits(policy), atol=1e-2)


def test_bfloat16_parts_are_remembered_with_the_adapter(folder: Path, tmp_path: Path) -> None:
    policy = quantized_policy(folder, "4bit", dtype="bfloat16")
    assert policy.get_input_embeddings().weight.dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in policy.parameters() if p.requires_grad)
    assert {w.dtype for _, w in named_full_weights(policy)} == {torch.bfloat16}
    save_adapter(policy, tmp_path, trained=True)
    assert '"dtype": "bfloat16"' in (tmp_path / BASE_QUANTIZATION).read_text()
    again = load_model(str(tmp_path)).model
    ours, theirs = dict(named_full_weights(policy)), dict(named_full_weights(again))
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_checkpoint_and_export_give_the_policy_that_was_trained(
    folder: Path, tmp_path: Path
) -> None:
    policy = quantized_policy(folder, "4bit")
    tokenizer = load_model(str(folder)).tokenizer
    save_policy(policy, tokenizer, tmp_path / "step", trained=True)
    other = quantized_policy(folder, "4bit", seed=5)
    restore_policy(other, tmp_path / "step")
    assert logits(other).equal(logits(policy))
    merged = export_model(tmp_path / "step", tmp_path / "merged", format="merged", card="# m\n")
    plain = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    assert not hasattr(plain.config, "quantization_config")
    assert torch.allclose(logits(plain.eval()), logits(policy), atol=2e-5)
    export_model(tmp_path / "step", tmp_path / "adapter", format="adapter", card="# a\n")
    assert (tmp_path / "adapter" / BASE_QUANTIZATION).is_file()


def test_a_record_that_cannot_be_understood_is_refused(folder: Path, tmp_path: Path) -> None:
    save_adapter(quantized_policy(folder, "4bit"), tmp_path, trained=True)
    (tmp_path / BASE_QUANTIZATION).write_text('{"quantization": "3bit", "dtype": "float32"}')
    with pytest.raises(ModelError, match="expected one of none, 4bit, 8bit"):
        load_model(str(tmp_path))
    (tmp_path / BASE_QUANTIZATION).write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(str(tmp_path))


def test_an_unknown_kind_and_a_missing_package_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="unknown quantization '3bit'"):
        load_model(str(folder), quantization="3bit")  # type: ignore[arg-type]
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else found(name)
    )
    with pytest.raises(ConfigError, match="needs the package bitsandbytes") as caught:
        load_model(str(folder), quantization="4bit")
    assert caught.value.hint == "pip install 'workings[quant]'"


def test_the_base_stays_bit_identical_through_a_hundred_merges(folder: Path) -> None:
    policy = quantized_policy(folder, "4bit")
    layer = base_model(policy).model.layers[1].mlp.down_proj.base_layer
    codes, first = layer.weight.data.clone(), merged_state(policy)
    for _ in range(100):
        last = dict(named_full_weights(policy))
    assert layer.weight.data.equal(codes)
    assert all(first[name].equal(last[name]) for name in first)


def test_rows_that_are_no_whole_blocks_are_refused_on_a_cpu(tmp_path: Path) -> None:
    narrow = save_tiny(tmp_path)
    with pytest.raises(ModelError, match=r"q_proj of .* has 32 inputs; .* a multiple of 64"):
        load_model(str(narrow), quantization="4bit", device="cpu")
    eight = load_model(str(narrow), quantization="8bit", device="cpu").model
    assert quantization_of(eight) == "8bit"
