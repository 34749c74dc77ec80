"""Operations of a step, against counting token by token and parameter by parameter."""

from __future__ import annotations

import copy

import pytest

from tiny import tiny_model, tiny_tokenizer
from workings.models.lora import add_lora
from workings.training.distributed import Ranks
from workings.training.flops import (
    ModelShape,
    Work,
    peak_flops,
    shape_of,
    training_flops,
    work_of,
)
from workings.training.packing import TrainRow


def row(key, group, prompt, response, trained=True):
    return TrainRow(
        key=key,
        group=group,
        prompt_ids=[1] * prompt,
        response_ids=[2] * response,
        mask=[trained] * response,
    )


ROWS = [row(0, 0, 3, 2), row(1, 0, 3, 5), row(2, 1, 4, 1), row(3, 1, 4, 9, trained=False)]


@pytest.mark.parametrize("layout", ["padded", "packed", "documents"])
def test_rows_are_documents_of_their_own(layout):
    lengths = [5, 8, 5]
    pairs = sum(position + 1 for length in lengths for position in range(length))
    assert work_of(ROWS, layout, Ranks()) == Work(num_tokens=18, num_pairs=pairs)


@pytest.mark.parametrize("layout", ["shared_prompt", "shared_documents"])
def test_a_shared_prompt_is_computed_once(layout):
    # Each token attends to its prompt, and to what stands before it in its own response.
    prompts = (1 + 2 + 3) + (1 + 2 + 3 + 4)
    responses = (4 + 5) + (4 + 5 + 6 + 7 + 8) + 5
    found = work_of(ROWS, layout, Ranks())
    assert found == Work(num_tokens=3 + 2 + 5 + 4 + 1, num_pairs=prompts + responses)


def test_work_adds_up():
    assert Work(num_tokens=1, num_pairs=2) + Work(num_tokens=3, num_pairs=4) == Work(
        num_tokens=4, num_pairs=6
    )


def test_the_shape_of_a_model_with_and_without_adapters():
    model = tiny_model(tiny_tokenizer())
    count = sum(p.numel() for p in model.parameters())
    full = shape_of(model)
    assert full == ModelShape(num_trained=count, num_frozen=0, num_layers=2, attention_width=32)
    policy = add_lora(
        copy.deepcopy(model), rank=2, alpha=4, dropout=0.0, targets=["q_proj"], seed=0
    )
    adapters = 2 * 2 * (32 + 32)
    assert shape_of(policy) == ModelShape(
        num_trained=adapters, num_frozen=count, num_layers=2, attention_width=32
    )


def test_the_formula_of_full_training():
    # 1.5B parameters, 28 layers of 12 heads of 128, one document of 2,048 tokens.
    shape = ModelShape(num_trained=1_543_714_304, num_frozen=0, num_layers=28, attention_width=1536)
    work = Work(num_tokens=2048, num_pairs=2048 * 2049 // 2)
    by_hand = 6 * 1_543_714_304 * 2048 + 28 * 6 * 2048 * 2049 * 1536
    assert training_flops(shape, work) == by_hand


@pytest.mark.parametrize(
    ("card", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.1),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_known_cards(card, tera):
    assert peak_flops(card) == pytest.approx(tera * 1e12)
