"""The reference: adapter off equals a frozen copy, and nothing about the policy changes by it."""

from __future__ import annotations

import copy

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.models.lora import add_lora
from workings.training.forward import response_scores
from workings.training.packing import TrainRow, pack
from workings.training.reference import Reference, adapter_adds_nothing, adapter_off

TOKENIZER = tiny_tokenizer()


def make_batches():
    rows = [
        TrainRow(
            key=key,
            group=key,
            prompt_ids=(5, 6, 7 + key),
            response_ids=tuple(range(10, 12 + key)),
            mask=(True,) * (2 + key),
        )
        for key in range(4)
    ]
    return pack(rows, layout="packed", max_tokens=16)


def make_policy(*, dropout=0.0):
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    policy = add_lora(
        model, rank=2, alpha=4.0, dropout=dropout, targets=("q_proj", "down_proj"), seed=1
    )
    return policy.double()


def move(policy, *, seed=3):
    """Give everything trainable other values, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.add_(0.3 * noise)


def plain_scores(model):
    with torch.no_grad():
        return [response_scores(model, batch).logprobs for batch in make_batches()]


def assert_equal(left, right):
    assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_dpo_reference_of_a_fresh_adapter_is_the_base_without_a_second_model():
    policy = make_policy()
    frozen = copy.deepcopy(policy)
    reference = Reference(policy)
    assert not reference.is_copy
    move(policy)
    assert_equal(reference.scores(make_batches()), plain_scores(frozen))
    assert any(
        not torch.equal(a, b)
        for a, b in zip(plain_scores(policy), plain_scores(frozen), strict=True)
    )


def test_dpo_reference_of_a_trained_adapter_is_a_copy_that_shares_the_base():
    policy = make_policy()
    move(policy)
    frozen = copy.deepcopy(policy)
    reference = Reference(policy)
    assert reference.is_copy
    move(policy, seed=4)
    assert_equal(reference.scores(make_batches()), plain_scores(frozen))
    with reference.model() as model:
        ours = {id(p) for p in policy.parameters()}
        own = [name for name, p in model.named_parameters() if id(p) not in ours]
        assert own
        assert all(".lora_" in name for name in own)
        assert not any(p.requires_grad for p in model.parameters())
    assert any(p.requires_grad for p in policy.parameters())


def test_dpo_reference_under_full_fine_tuning_is_a_copy_of_everything():
    policy = tiny_model(TOKENIZER, dtype=torch.float64)
    before = plain_scores(policy)
    reference = Reference(policy)
    assert reference.is_copy
    move(policy)
    assert_equal(reference.scores(make_batches()), before)
    with reference.model() as model:
        assert not {id(p) for p in model.parameters()} & {id(p) for p in policy.parameters()}
    assert all(p.requires_grad for p in policy.parameters())


def test_dpo_reference_takes_the_temperature_and_has_no_gradient():
    policy = make_policy()
    reference = Reference(policy)
    with torch.no_grad():
        wanted = [
            response_scores(policy, batch, temperature=0.7).logprobs for batch in make_batches()
        ]
    found = reference.scores(make_batches(), temperature=0.7)
    assert_equal(found, wanted)
    assert not any(scores.requires_grad for scores in found)
    assert reference.scores([]) == []


def test_dpo_reference_is_scored_without_dropout_and_leaves_the_mode_alone():
    policy = make_policy(dropout=0.5)
    move(policy)
    reference = Reference(policy)
    policy.train()
    with torch.no_grad():
        first, second = reference.scores(make_batches()), reference.scores(make_batches())
    assert_equal(first, second)
    assert policy.training


@pytest.mark.parametrize("training", [True, False])
def test_dpo_adapter_is_back_after_an_error(training):
    policy = make_policy()
    move(policy)
    policy.train(training)
    frozen_factor = next(p for name, p in policy.named_parameters() if ".lora_A." in name)
    frozen_factor.requires_grad_(False)
    before, flags = plain_scores(policy), [p.requires_grad for p in policy.parameters()]

    def fail(model):
        assert not model.training
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), adapter_off(policy) as base:
        fail(base)
    assert policy.training is training
    assert [p.requires_grad for p in policy.parameters()] == flags
    assert_equal(plain_scores(policy), before)


def test_dpo_adapter_off_twice_stays_off_until_the_outer_block_ends():
    policy = make_policy()
    off = plain_scores(policy)
    move(policy)
    on = plain_scores(policy)
    with adapter_off(policy):
        with adapter_off(policy):
            assert_equal(plain_scores(policy), off)
        assert_equal(plain_scores(policy), off)
    assert_equal(plain_scores(policy), on)


def test_dpo_scoring_the_base_leaves_a_pending_gradient_right():
    policy = make_policy()
    move(policy)

    def gradients(score_between):
        policy.zero_grad()
        loss = sum(response_scores(policy, batch).logprobs.sum() for batch in make_batches())
        if score_between:
            with adapter_off(policy):
                plain_scores(policy)
        loss.backward()
        return [p.grad.clone() for p in policy.parameters() if p.requires_grad]

    assert_equal(gradients(True), gradients(False))


def test_dpo_an_adapter_beside_which_something_is_trained_is_not_the_base():
    policy = make_policy()
    assert adapter_adds_nothing(policy)
    assert not adapter_adds_nothing(tiny_model(TOKENIZER))
    policy.get_input_embeddings().weight.requires_grad_(True)
    assert not adapter_adds_nothing(policy)
    assert Reference(policy).is_copy
