"""Whose weights an engine samples from: the policy's, a copy's, an adapter's; never stale ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.models.lora import add_lora
from workings.models.weights import named_full_weights
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.sampling_copy import LowPrecisionLinear, SamplingCopy
from workings.rollout.transformers_engine import TransformersEngine

TOKENIZER = tiny_tokenizer()
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=3, seed=seed)
    for seed, text in enumerate(("hello", "what is it?", "zz"))
]
SAMPLING = SamplingParams(max_tokens=12)


def engine(model: Any, **settings: Any) -> TransformersEngine:
    return TransformersEngine(model, TOKENIZER, eos_token_ids=[TOKENIZER.eos_token_id], **settings)


def ids(sampler: TransformersEngine) -> list[list[list[int]]]:
    groups = sampler.generate(REQUESTS, SAMPLING)
    return [[list(sample.ids) for sample in group] for group in groups]


def change(model: Any, seed: int = 1) -> None:
    """What an optimizer step does to the weights, only larger."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(noise.to(parameter.dtype) * 0.3)


def lora_model(*, dtype: torch.dtype = torch.float64, tied: bool = True) -> Any:
    model = tiny_model(TOKENIZER, dtype=dtype, tied=tied)
    policy = add_lora(
        model, rank=4, alpha=8, dropout=0.1, targets=["q_proj", "v_proj", "down_proj"], seed=0
    )
    return policy.to(dtype)


def test_D12_a_shared_engine_samples_the_policy_as_it_is() -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    sampler = engine(model)
    before = ids(sampler)
    change(model)
    after = ids(sampler)
    assert before != after
    assert after == ids(engine(model))
    sampler.load_weights(3, named_full_weights(model))
    assert sampler.weight_version == 3
    assert sampler.generate(REQUESTS, SAMPLING)[0][0].weight_version == 3


@pytest.mark.parametrize("tied", [True, False])
def test_D12_a_copy_is_stale_until_weights_are_loaded(tied: bool) -> None:
    model = tiny_model(TOKENIZER, dtype=torch.float64, tied=tied)
    sampler = engine(model, share_weights=False)
    before = ids(sampler)
    change(model)
    assert ids(sampler) == before
    sampler.load_weights(1, named_full_weights(model))
    assert ids(sampler) == ids(engine(model)) != before
    assert sampler.weight_version == 1


def test_A9b_logprobs_after_a_step_and_sync_equal_the_trainers() -> None:
    policy = lora_model(dtype=torch.float32)
    sampler = engine(policy, share_weights=False)
    change(policy)
    sampler.load_weights(1, named_full_weights(policy))
    for request, group in zip(REQUESTS, sampler.generate(REQUESTS, SAMPLING), strict=True):
        for sample in group:
            row = torch.tensor([[*request.prompt_ids, *sample.ids]])
            with torch.no_grad():
                full = policy(input_ids=row).logits[0].log_softmax(-1)
            expected = full[len(request.prompt_ids) - 1 : -1].gather(
                -1, torch.tensor(sample.ids)[:, None]
            )[:, 0]
            assert torch.allclose(torch.tensor(sample.sampling_logprobs), expected, atol=1e-5)


def test_a_lora_policy_samples_as_its_merged_copy_does() -> None:
    policy = lora_model()
    change(policy)
    live = engine(policy)
    merged = engine(policy, share_weights=False)
    assert ids(live) == ids(merged)
    assert ids(live) != ids(engine(tiny_model(TOKENIZER, dtype=torch.float64)))
    change(policy, seed=2)
    live.load_weights(1, named_full_weights(policy))
    merged.load_weights(1, named_full_weights(policy))
    assert ids(live) == ids(merged)


def test_adapter_dropout_is_off_while_sampling_and_on_again_afterwards() -> None:
    policy = lora_model()
    change(policy)
    expected = ids(engine(policy))
    policy.train()
    assert ids(engine(policy)) == expected
    assert policy.training
    assert policy.base_model.model.model.layers[0].self_attn.q_proj.training


def test_weights_of_another_model_are_refused_by_a_shared_engine() -> None:
    model = tiny_model(TOKENIZER)
    sampler = engine(model)
    other = tiny_model(TOKENIZER, seed=1)
    with pytest.raises(EngineError, match="samples from the policy's own weights") as caught:
        sampler.load_weights(1, named_full_weights(other))
    assert "share_weights=False" in str(caught.value.hint)
    assert sampler.weight_version == 0


def test_missing_unknown_and_misshapen_weights_are_refused_by_a_copy() -> None:
    model = tiny_model(TOKENIZER)
    sampler = engine(model, share_weights=False)
    whole = dict(named_full_weights(model))
    name = "model.layers.0.self_attn.q_proj.weight"
    with pytest.raises(EngineError, match=r"not given 1 of its weights, such as model\.norm"):
        sampler.load_weights(1, ((n, t) for n, t in whole.items() if n != "model.norm.weight"))
    with pytest.raises(EngineError, match="mixture"):
        sampler.generate(REQUESTS, SAMPLING)
    with pytest.raises(EngineError, match=r"model\.nonsense, which its model does not have"):
        sampler.load_weights(1, [("model.nonsense", torch.zeros(1))])
    with pytest.raises(EngineError, match=r"q_proj\.weight of shape \[3\]"):
        sampler.load_weights(1, [(name, torch.zeros(3))])
    sampler.load_weights(2, whole.items())
    assert ids(sampler) == ids(engine(model))


def test_a_copy_shares_nothing_with_the_policy() -> None:
    for policy in (tiny_model(TOKENIZER), lora_model()):
        duplicate = SamplingCopy(policy, torch.bfloat16).module
        own = {tensor.data_ptr() for tensor in policy.parameters()}
        assert not own & {tensor.data_ptr() for tensor in duplicate.parameters()}
        assert not any(tensor.requires_grad for tensor in duplicate.parameters())
        assert not any("lora_" in name for name, _ in duplicate.named_parameters())


def test_a_low_precision_copy_lowers_linear_layers_alone() -> None:
    model = tiny_model(TOKENIZER)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sampler = engine(model, sampling_dtype=torch.bfloat16)
    assert sampler._copy is not None
    for name, tensor in sampler._copy.module.named_parameters():
        linear = "proj" in name or name == "lm_head.weight"
        assert tensor.dtype == (torch.bfloat16 if linear else torch.float32), name
    change(model)
    sampler.load_weights(1, named_full_weights(model))
    groups = sampler.generate(REQUESTS, SAMPLING)
    gaps = []
    for request, group in zip(REQUESTS, groups, strict=True):
        for sample in group:
            row = torch.tensor([[*request.prompt_ids, *sample.ids]])
            with torch.no_grad():
                full = model(input_ids=row).logits[0].log_softmax(-1)
            expected = full[len(request.prompt_ids) - 1 : -1].gather(
                -1, torch.tensor(sample.ids)[:, None]
            )[:, 0]
            gaps.append((torch.tensor(sample.sampling_logprobs) - expected).abs().max())
    assert max(gaps) < 0.2
    assert max(gaps) > 1e-6, "it was to be computed in bfloat16"
    assert all(
        torch.equal(tensor, model.state_dict()[name]) == (not name.endswith("weight"))
        for name, tensor in before.items()
    )


def test_a_low_precision_linear_adds_its_bias_in_full_precision() -> None:
    linear = torch.nn.Linear(8, 4)
    lowered = LowPrecisionLinear(linear, torch.bfloat16)
    inputs = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    assert lowered(inputs).dtype == torch.float32
    assert torch.allclose(lowered(inputs), linear(inputs), atol=3e-2)
    nothing = torch.zeros(1, 8)
    assert torch.equal(lowered(nothing)[0], linear.bias)
