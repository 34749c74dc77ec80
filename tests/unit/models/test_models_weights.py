"""Full weights by name: complete, merged out of place, the base untouched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tiny import tiny_model, tiny_tokenizer
from workings.errors import ModelError
from workings.models.lora import add_lora
from workings.models.weights import base_model, has_adapter, merged_state, named_full_weights

TOKENIZER = tiny_tokenizer()


def trained_lora(model: Any, targets: list[str]) -> Any:
    policy = add_lora(model, rank=3, alpha=5, dropout=0.1, targets=targets, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise.to(parameter.dtype) * 0.3)
    return policy.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits
    return output


@pytest.mark.parametrize("tied", [True, False])
def test_a_plain_model_gives_its_own_storage_once(tied: bool) -> None:
    model = tiny_model(TOKENIZER, tied=tied)
    weights = dict(named_full_weights(model))
    state = model.state_dict()
    assert set(state) - set(weights) == ({"lm_head.weight"} if tied else set())
    for name, tensor in weights.items():
        assert tensor.data_ptr() == state[name].data_ptr()
        assert not tensor.requires_grad
    names = [name for name, _ in named_full_weights(model)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("tied", [True, False])
def test_merged_weights_give_the_policys_logits(tied: bool) -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64, tied=tied)
    plain = logits(model)
    policy = trained_lora(model, ["q_proj", "v_proj", "gate_proj", "down_proj"])
    fresh = tiny_model(TOKENIZER, seed=9, dtype=torch.float64, tied=tied)
    weights = dict(named_full_weights(policy))
    missing, unexpected = fresh.load_state_dict(weights, strict=False)
    assert missing == (["lm_head.weight"] if tied else [])
    assert unexpected == []
    assert torch.allclose(logits(fresh), logits(policy), atol=1e-12)
    assert not torch.allclose(logits(fresh), plain, atol=1e-3)


def test_transposed_layers_are_merged_too() -> None:
    config = GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, fresh = GPT2LMHeadModel(config).double().eval(), GPT2LMHeadModel(config).double()
    policy = trained_lora(model, ["c_attn", "c_fc"])
    fresh.load_state_dict(dict(named_full_weights(policy)), strict=False)
    assert torch.allclose(logits(fresh.eval()), logits(policy), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_A9a_a_hundred_syncs_leave_the_base_bit_identical(dtype: torch.dtype) -> None:
    policy = trained_lora(tiny_model(TOKENIZER, dtype=dtype), ["q_proj", "up_proj"])
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    for _ in range(100):
        last = dict(named_full_weights(policy))
    assert all(torch.equal(t, before[name]) for name, t in policy.state_dict().items())
    assert {tensor.dtype for tensor in last.values()} == {dtype}
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(
        last[name],
        before["base_model.model." + name.replace("q_proj.weight", "q_proj.base_layer.weight")],
    )


def test_a_merge_is_rounded_once_in_bfloat16() -> None:
    policy = trained_lora(tiny_model(TOKENIZER, dtype=torch.bfloat16), ["q_proj"])
    layer = base_model(policy).model.layers[0].self_attn.q_proj
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    exact = layer.base_layer.weight.double() + up.double() @ down.double() * (5 / 3)
    merged = dict(named_full_weights(policy))["model.layers.0.self_attn.q_proj.weight"]
    assert (merged.double() - exact).abs().max() <= exact.abs().max() * 2.0**-8


def test_tensors_come_one_at_a_time() -> None:
    """A merge is not computed before it is asked for: a generator, not a dictionary."""
    policy = trained_lora(tiny_model(TOKENIZER), ["q_proj"])
    stream = named_full_weights(policy)
    name, _ = next(stream)
    assert name == "model.embed_tokens.weight"
    with torch.no_grad():
        base_model(policy).model.layers[0].self_attn.q_proj.base_layer.weight.zero_()
    later = dict(stream)["model.layers.0.self_attn.q_proj.weight"]
    layer = base_model(policy).model.layers[0].self_attn.q_proj
    assert torch.allclose(later, layer.get_delta_weight("default"), atol=1e-6)


def test_merged_state_shares_nothing() -> None:
    for policy in (tiny_model(TOKENIZER), trained_lora(tiny_model(TOKENIZER), ["q_proj"])):
        own = {parameter.data_ptr() for parameter in policy.parameters()}
        assert not own & {tensor.data_ptr() for tensor in merged_state(policy).values()}


def test_A9c_what_cannot_be_merged_exactly_is_refused() -> None:
    policy = trained_lora(tiny_model(TOKENIZER), ["q_proj"])
    policy.merge_adapter()
    with pytest.raises(ModelError, match="already merged into the base in place"):
        dict(named_full_weights(policy))
    policy.unmerge_adapter()
    layer = base_model(policy).model.layers[0].self_attn.q_proj
    quantised = torch.zeros(layer.base_layer.weight.shape, dtype=torch.uint8)
    layer.base_layer.weight = torch.nn.Parameter(quantised, requires_grad=False)
    with pytest.raises(ModelError, match=r"holds weights in codes \(torch\.uint8\)"):
        dict(named_full_weights(policy))


def test_persistent_buffers_are_weights_too() -> None:
    model = tiny_model(TOKENIZER)
    model.register_buffer("scale", torch.ones(2))
    assert "scale" in dict(named_full_weights(model))


def test_sharded_tensors_are_gathered() -> None:
    class Shard(torch.nn.Parameter):
        def full_tensor(self) -> torch.Tensor:
            return torch.full((4,), 7.0)

    module = torch.nn.Module()
    module.weight = Shard(torch.zeros(2))
    assert dict(named_full_weights(module))["weight"].tolist() == [7.0] * 4


def test_the_model_inside() -> None:
    model = tiny_model(TOKENIZER)
    assert base_model(model) is model
    assert not has_adapter(model)
    policy = trained_lora(model, ["q_proj"])
    assert base_model(policy) is model
    assert has_adapter(policy)
