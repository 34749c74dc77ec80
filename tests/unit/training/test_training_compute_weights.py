"""Copies of weights in the dtype of the arithmetic: what is replaced, and where gradients go."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.models.lora import add_lora
from workings.objectives.reductions import StepTotals
from workings.training.compute_weights import compute_weights, computing_dtype, weights_in
from workings.training.forward import response_scores
from workings.training.optim import build_adamw
from workings.training.packing import TrainRow, pack
from workings.training.step import policy_step
from workings.training.supervised_loss import supervised_loss

TOKENIZER = tiny_tokenizer()
ROWS = [
    TrainRow(key=k, group=k, prompt_ids=[5, 9 + k], response_ids=[7, 30 + k, 3], mask=[True] * 3)
    for k in range(6)
]
TOTALS = StepTotals(num_rows=6, num_tokens=18)


def gradients(model, *, max_rows, dtype, autocast=None):
    """Gradients of a step, computed in copies of dtype, or under autocast."""
    batches = pack(ROWS, layout="packed", max_tokens=100, max_rows=max_rows)
    optimizer, loss = build_adamw(model), supervised_loss(TOTALS)
    if dtype is None:
        policy_step(model, optimizer, batches, loss, max_grad_norm=0, autocast=autocast)
    else:
        with weights_in(model, dtype):
            policy_step(model, optimizer, batches, loss, max_grad_norm=0, autocast=dtype)
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("tied", [True, False])
def test_layers_are_replaced_and_come_back(tied):
    model = tiny_model(TOKENIZER, tied=tied)
    before = dict(model.named_parameters())
    with weights_in(model, torch.bfloat16):
        assert computing_dtype(model) == torch.bfloat16
        inside = dict(model.named_parameters())
        assert inside.keys() == before.keys()
        for name, parameter in inside.items():
            ends = "embed_tokens" in name or "lm_head" in name
            assert parameter.dtype == (torch.float32 if ends else torch.bfloat16), name
            assert torch.equal(parameter, before[name].to(parameter.dtype))
        assert model.model(torch.tensor([[1, 2]])).last_hidden_state.dtype == torch.bfloat16
        with compute_weights(model, torch.bfloat16):  # an inner block changes nothing
            assert dict(model.named_parameters()).keys() == before.keys()
    assert computing_dtype(model) is None
    assert all(p is before[name] for name, p in model.named_parameters())
    assert model.model(torch.tensor([[1, 2]])).last_hidden_state.dtype == torch.float32


def copies_in(model):
    with weights_in(model, torch.bfloat16):
        return {
            name: (id(parameter), parameter.detach().clone(), parameter.requires_grad)
            for name, parameter in model.named_parameters()
            if parameter.dtype == torch.bfloat16
        }


def test_the_next_block_copies_the_weights_as_they_are_then():
    model = tiny_model(TOKENIZER)
    first = copies_in(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.mul_(2)
    second = copies_in(model)
    for name, (identity, values, _) in first.items():
        assert second[name][0] == identity, "the copies are made once"
        assert torch.equal(second[name][1], 2 * values)


def test_copies_are_made_anew_for_other_weights():
    model = tiny_model(TOKENIZER)
    copies_in(model)
    layer = model.model.layers[0].mlp.down_proj
    layer.weight = torch.nn.Parameter(torch.ones_like(layer.weight))
    model.model.layers[1].requires_grad_(False)
    found = copies_in(model)
    assert found["model.layers.0.mlp.down_proj.weight"][1].eq(1).all()
    for name, (_, _, wants_grad) in found.items():
        assert wants_grad == ("layers.1." not in name)


def test_weights_that_are_in_the_dtype_already_stay():
    model = tiny_model(TOKENIZER).bfloat16()
    before = dict(model.named_parameters())
    with weights_in(model, torch.bfloat16):
        assert all(p is before[name] for name, p in model.named_parameters())
        assert computing_dtype(model) == torch.bfloat16


def test_between_blocks_copies_hold_no_memory_and_keep_no_model():
    model = tiny_model(TOKENIZER)
    with weights_in(model, torch.bfloat16):
        weight = model.model.layers[0].mlp.up_proj.weight
        storage = weight.untyped_storage()
        assert storage.nbytes() > 0
        model.model(torch.tensor([[1, 2]])).last_hidden_state.float().sum().backward()
    assert storage.nbytes() == 0
    alive = weakref.ref(model), weakref.ref(model.model.layers[0].mlp.up_proj.weight)
    del model, weight
    gc.collect()
    assert [one() for one in alive] == [None, None]


def test_weights_come_back_after_an_error():
    model = tiny_model(TOKENIZER)
    before = dict(model.named_parameters())
    with pytest.raises(RuntimeError, match="on purpose"), weights_in(model, torch.bfloat16):
        raise RuntimeError("on purpose")
    assert all(p is before[name] for name, p in model.named_parameters())
    assert computing_dtype(model) is None


@pytest.mark.parametrize("max_rows", [None, 2])
def test_wider_copies_give_the_gradients_of_the_weights(max_rows):
    # A copy in the weights' own precision must be no different from the weights themselves, so the
    # model is float32 and a copy is float16 of it: exact for weights on float16's grid.
    model = tiny_model(TOKENIZER)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    want = gradients(model, max_rows=max_rows, dtype=None)
    got = gradients(model, max_rows=max_rows, dtype=torch.float16)
    assert got.keys() == want.keys()
    for name, grad in got.items():
        assert grad.dtype == torch.float32
        assert (grad - want[name]).norm() < 5e-3 * want[name].norm(), name


def test_microbatches_are_accumulated_in_float32():
    model = tiny_model(TOKENIZER)
    whole = gradients(model, max_rows=None, dtype=torch.bfloat16)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(whole[name], whole[name].bfloat16().float())  # one addend, as it came
    split = gradients(model, max_rows=2, dtype=torch.bfloat16)
    assert not torch.equal(split[name], split[name].bfloat16().float())
    assert (split[name] - whole[name]).norm() < 2e-2 * whole[name].norm()


def test_hooks_of_the_weights_run_as_if_autograd_had_made_the_gradient():
    model = tiny_model(TOKENIZER)
    seen = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: seen.append((name, p.grad is not None))
        )
    names = {name for name, _ in model.named_parameters()}
    gradients(model, max_rows=None, dtype=torch.bfloat16)
    assert {name for name, _ in seen} == names
    assert all(has_gradient for _, has_gradient in seen)


def test_adapters_are_copied_and_trained():
    model = add_lora(
        tiny_model(TOKENIZER), rank=2, alpha=4, dropout=0.0, targets=("q_proj", "down_proj"), seed=0
    )
    got = gradients(model, max_rows=2, dtype=torch.bfloat16)
    want = gradients(model, max_rows=2, dtype=None, autocast=torch.bfloat16)
    assert got.keys() == want.keys()
    assert all(".lora_" in name for name in got)
    for name, grad in got.items():
        assert grad.dtype == torch.float32
        assert (grad - want[name]).norm() <= 5e-2 * want[name].norm(), name


def test_nothing_happens_on_a_cpu_or_without_a_dtype():
    model = tiny_model(TOKENIZER)
    for dtype in (torch.bfloat16, None):
        with compute_weights(model, dtype):
            assert computing_dtype(model) is None


def test_scores_in_copies_are_near_those_in_float32():
    model = tiny_model(TOKENIZER)
    (batch,) = pack(ROWS, layout="packed", max_tokens=100)
    want = response_scores(model, batch).logprobs
    with weights_in(model, torch.bfloat16):
        got = response_scores(model, batch, autocast=torch.bfloat16).logprobs
    assert got.dtype == torch.float32
    assert (got - want).abs().max() < 0.1
