"""Engines over a policy whose base is held in codes: its own layers, or merged weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.errors import EngineError
from workings.models.load import load_model
from workings.models.lora import add_lora
from workings.models.weights import merged_state, named_full_weights
from workings.rollout.engine import Engine, Request, SamplingParams
from workings.rollout.paged.engine import PagedEngine
from workings.rollout.transformers_engine import TransformersEngine

TOKENIZER = tiny_tokenizer()
EOS = [TOKENIZER.eos_token_id]
REQUESTS = [
    Request(prompt_ids=tuple(TOKENIZER.encode(text)), num_samples=2, seed=seed)
    for seed, text in enumerate(("hello", "what is it?"))
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("base")
    tiny_model(TOKENIZER, width=64).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    base = load_model(str(folder), quantization="4bit").model
    adapted = add_lora(base, rank=4, alpha=8, dropout=0.0, targets=["q_proj", "up_proj"], seed=0)
    change(adapted, seed=1)
    return adapted.eval()


def change(policy: Any, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".lora_" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def ids(engine: Engine) -> list[list[list[int]]]:
    groups = engine.generate(REQUESTS, SamplingParams(max_tokens=10))
    return [[list(sample.ids) for sample in group] for group in groups]


def whole(policy: Any) -> Any:
    model = tiny_model(TOKENIZER, width=64)
    model.load_state_dict(merged_state(policy), strict=False)
    return model


def test_the_transformers_engine_samples_the_merged_distribution(policy: Any) -> None:
    engine = TransformersEngine(policy, TOKENIZER, eos_token_ids=EOS)
    before = ids(engine)
    assert before == ids(TransformersEngine(whole(policy), TOKENIZER, eos_token_ids=EOS))
    change(policy, seed=2)
    engine.load_weights(1, named_full_weights(policy))
    after = ids(engine)
    assert after != before
    assert after == ids(TransformersEngine(whole(policy), TOKENIZER, eos_token_ids=EOS))


def test_the_paged_engine_takes_dequantised_weights(policy: Any) -> None:
    engine = PagedEngine(policy, TOKENIZER, eos_token_ids=EOS, cache_tokens=512)
    assert ids(engine) == ids(
        PagedEngine(whole(policy), TOKENIZER, eos_token_ids=EOS, cache_tokens=512)
    )
    change(policy, seed=3)
    engine.load_weights(1, named_full_weights(policy))
    assert ids(engine) == ids(
        PagedEngine(whole(policy), TOKENIZER, eos_token_ids=EOS, cache_tokens=512)
    )


def test_a_private_copy_of_codes_is_refused(policy: Any) -> None:
    with pytest.raises(EngineError, match="base is held in 4bit cannot be filled"):
        TransformersEngine(policy, TOKENIZER, eos_token_ids=EOS, share_weights=False)


def test_a_copy_of_the_policy_shares_the_codes(policy: Any) -> None:
    shared = {id(p): p for p in policy.parameters() if not p.requires_grad}
    twin = copy.deepcopy(policy, shared)
    with torch.no_grad():
        ours, theirs = (
            model(input_ids=torch.tensor([[5, 6, 7]])).logits for model in (policy, twin)
        )
    assert ours.equal(theirs)
