from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tiny import tiny_model, tiny_tokenizer
from workings.models.tensors import load_tensors, save_tensors
from workings.training.offloaded_adamw import OffloadedAdamW
from workings.training.optim import build_adamw, set_learning_rate

SETTINGS = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def groups(model):
    named = list(model.named_parameters())
    return [
        {"params": [p for _, p in named if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for _, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]


def gradients(model, step):
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient.to(parameter.device, parameter.dtype)


def pair(device="cpu", **more):
    model = tiny_model(tiny_tokenizer(), seed=1).to(device)
    twin = copy.deepcopy(model)
    return model, twin, build_adamw(model, **SETTINGS), OffloadedAdamW(groups(twin), **more)


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        set_learning_rate(optimizer, 1e-2 / (1 + step))
        gradients(model, step)
        optimizer.step()


def assert_equal(model, twin):
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.equal(other)


@pytest.mark.parametrize("bucket_bytes", [1, 20_000, 1 << 28])
def test_equals_torchs_adamw_bit_for_bit(bucket_bytes):
    model, twin, adamw, offloaded = pair(**SETTINGS, bucket_bytes=bucket_bytes)
    train(model, adamw, 5)
    train(twin, offloaded, 5)
    assert_equal(model, twin)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        for name in ("step", "exp_avg", "exp_avg_sq"):
            assert adamw.state[one][name].equal(offloaded.state[other][name])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("bucket_bytes", [1, 20_000, 1 << 28])
def test_on_a_gpu_the_moments_stay_in_pinned_cpu_memory(bucket_bytes):
    model, twin, adamw, offloaded = pair("cuda", **SETTINGS, bucket_bytes=bucket_bytes)
    train(model, adamw, 5)
    train(twin, offloaded, 5)
    assert_equal(model, twin)
    for state in offloaded.state.values():
        assert state["exp_avg"].is_pinned()
        assert state["exp_avg_sq"].is_pinned()


def test_a_state_goes_on_from_a_file_and_to_and_from_torchs_adamw(tmp_path):
    model, twin, adamw, offloaded = pair(**SETTINGS)
    train(model, adamw, 3)
    train(twin, offloaded, 3)
    save_tensors(tmp_path / "ours.pt", offloaded.state_dict())
    save_tensors(tmp_path / "theirs.pt", adamw.state_dict())
    ours, theirs = OffloadedAdamW(groups(twin), **SETTINGS), build_adamw(model, **SETTINGS)
    ours.load_state_dict(load_tensors(tmp_path / "theirs.pt"))
    theirs.load_state_dict(load_tensors(tmp_path / "ours.pt"))
    train(model, theirs, 3, first=3)
    train(twin, ours, 3, first=3)
    assert_equal(model, twin)


def test_loading_into_bfloat16_weights_keeps_the_moments_whole(tmp_path):
    model = nn.Linear(3, 3).to(torch.bfloat16)
    optimizer = OffloadedAdamW(model.parameters())
    gradients(model, 0)
    optimizer.step()
    moment = optimizer.state[model.weight]["exp_avg"]
    assert moment.dtype == torch.float32
    again = OffloadedAdamW(model.parameters())
    again.load_state_dict(optimizer.state_dict())
    assert again.state[model.weight]["exp_avg"].dtype == torch.float32
    assert again.state[model.weight]["exp_avg"].equal(moment)


def test_the_builder_offloads_where_it_is_asked_to():
    model = tiny_model(tiny_tokenizer())
    plain, offloaded = (
        build_adamw(model, **SETTINGS, offload=offload) for offload in (False, True)
    )
    assert type(plain) is torch.optim.AdamW
    assert type(offloaded) is OffloadedAdamW
    for one, other in zip(plain.param_groups, offloaded.param_groups, strict=True):
        assert one.keys() == other.keys()
        assert [one[key] for key in one if key != "params"] == [
            other[key] for key in other if key != "params"
        ]


def test_a_bfloat16_weight_is_updated_in_float32_and_rounded():
    weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.bfloat16))
    exact = nn.Parameter(weight.detach().float())
    for parameter, optimizer in (
        (weight, OffloadedAdamW([weight], lr=0.1)),
        (exact, torch.optim.AdamW([exact], lr=0.1, fused=True)),
    ):
        parameter.grad = torch.tensor([0.5, -1.0]).to(parameter.dtype)
        optimizer.step()
    assert weight.equal(exact.to(torch.bfloat16))


def test_a_parameter_without_a_gradient_is_left_alone():
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = OffloadedAdamW([used, unused])
    used.grad = torch.ones(2)
    assert optimizer.step(lambda: 3.0) == 3.0
    assert unused.equal(torch.ones(2))
    assert unused not in optimizer.state
    assert not used.equal(torch.ones(2))


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1e-8}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="expected betas in"):
        OffloadedAdamW([nn.Parameter(torch.ones(1))], **wrong)
