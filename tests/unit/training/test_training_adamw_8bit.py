"""AdamW with 8-bit moments: near AdamW, small, exact on resume, never over narrow weights."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import nn

from workings.errors import ConfigError, TrainingError
from workings.models.tensors import load_tensors, save_tensors
from workings.training.checkpointer import _plain
from workings.training.optim import build_optimizer, set_learning_rate

SETTINGS = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 64))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        set_learning_rate(optimizer, 1e-3 / (1 + step))
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(16, 64, generator=generator)
        optimizer.zero_grad()
        (model(inputs) - inputs.flip(1)).square().mean().backward()
        optimizer.step()


def build(model: nn.Module, name: str) -> torch.optim.Optimizer:
    return build_optimizer(model, name=name, **SETTINGS)  # type: ignore[arg-type]


def test_moments_are_8_bit_and_the_path_is_that_of_adamw() -> None:
    small, large = network(), network()
    start = copy.deepcopy(small)
    ours, theirs = build(small, "adamw_8bit"), build(large, "adamw")
    assert [group["weight_decay"] for group in ours.param_groups] == [0.1, 0.0]
    train(small, ours, range(20))
    train(large, theirs, range(20))
    gap = moved = 0.0
    for one, other, before in zip(
        small.parameters(), large.parameters(), start.parameters(), strict=True
    ):
        gap += (one - other).double().square().sum().item()
        moved += (other - before).double().square().sum().item()
    assert (gap / moved) ** 0.5 < 0.05
    state = ours.state[small[0].weight]  # type: ignore[index]
    assert state["state1"].dtype == state["state2"].dtype == torch.uint8
    assert ours.state[small[0].bias]["state1"].dtype == torch.float32  # type: ignore[index]


def test_a_state_from_a_file_goes_on_bit_for_bit(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = network()
    optimizer = build(model, "adamw_8bit")
    train(model, optimizer, range(4))
    save_tensors(tmp_path / "optimizer.pt", _plain(optimizer.state_dict()))
    resumed = copy.deepcopy(model)
    again = build(resumed, "adamw_8bit")
    again.load_state_dict(load_tensors(tmp_path / "optimizer.pt"))  # type: ignore[arg-type]
    train(model, optimizer, range(4, 8))
    train(resumed, again, range(4, 8))
    for one, other in zip(model.parameters(), resumed.parameters(), strict=True):
        assert one.equal(other)


def test_updates_far_below_the_grid_of_bfloat16_are_kept() -> None:
    weight = nn.Linear(64, 96)
    start = weight.weight.detach().clone()
    optimizer = build_optimizer(weight, name="adamw_8bit")
    set_learning_rate(optimizer, 1e-6)
    for _ in range(200):
        weight.weight.grad, weight.bias.grad = torch.ones(96, 64), torch.ones(96)
        optimizer.step()
    assert (start - weight.weight).double().mean().item() == pytest.approx(2e-4, rel=0.05)


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit", "rmsprop"])
def test_weights_that_would_lose_updates_are_refused(name: str) -> None:
    narrow = network().to(torch.bfloat16)
    with pytest.raises(TrainingError, match=r"torch\.bfloat16; .* round small updates away"):
        build_optimizer(narrow, name=name)  # type: ignore[arg-type]
    kept = build_optimizer(narrow, name="adamw", offload=True)
    assert type(kept).__name__ == "OffloadedAdamW"


def test_offloading_is_adamws_alone() -> None:
    with pytest.raises(ValueError, match="adamw_8bit with offload=True; not offered"):
        build_optimizer(network(), name="adamw_8bit", offload=True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else found(name)
    )
    with pytest.raises(ConfigError, match=r"optimizer\.name=adamw_8bit needs .* bitsandbytes") as e:
        build_optimizer(network(), name="adamw_8bit")
    assert e.value.hint == "pip install 'workings[quant]'"
