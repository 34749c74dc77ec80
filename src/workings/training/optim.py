"""The optimizers, their parameter groups and the learning-rate schedules."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn

from workings.training.offloaded_adamw import OffloadedAdamW

Schedule = Literal["constant", "linear", "cosine"]
OptimizerName = Literal["adamw", "rmsprop"]


def learning_rate_at(
    step: int,
    num_steps: int,
    *,
    peak: float,
    schedule: Schedule = "constant",
    warmup_steps: int = 0,
) -> float:
    """Learning rate of optimizer step `step`, counted from 0; a pure function, so resume is exact.

    The rate rises linearly over `warmup_steps` and reaches `peak` at step `warmup_steps`; then it
    stays, or falls linearly or along a cosine towards 0 at `num_steps`.

    >>> [learning_rate_at(s, 6, peak=1.0, schedule="linear", warmup_steps=2) for s in range(6)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    progress = min(1.0, progress)
    if schedule == "linear":
        return peak * (1.0 - progress)
    return peak * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_from(warmup_steps: int, warmup_ratio: float, num_steps: int) -> int:
    """Warm-up in steps: as given, else the ratio of all steps, rounded up."""
    return warmup_steps or math.ceil(warmup_ratio * num_steps)


def build_optimizer(
    model: nn.Module,
    *,
    name: OptimizerName = "adamw",
    betas: tuple[float, float] = (0.9, 0.95),
    rmsprop_alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    offload: bool = False,
) -> torch.optim.Optimizer:
    """The optimizer of a run over the trainable parameters, at a learning rate of 0.

    adamw: see `build_adamw`. rmsprop: torch's, not centred and without momentum; it reads
    `rmsprop_alpha` and `eps`, and neither decays weights nor offloads its state.
    """
    if name == "adamw":
        return build_adamw(model, betas=betas, eps=eps, weight_decay=weight_decay, offload=offload)
    if name != "rmsprop":
        raise ValueError(f"unknown optimizer {name!r}; expected adamw or rmsprop")
    if weight_decay or offload:
        raise ValueError(
            f"rmsprop with weight_decay={weight_decay}, offload={offload}; not offered"
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.RMSprop(trained, lr=0.0, alpha=rmsprop_alpha, eps=eps)


def build_adamw(
    model: nn.Module,
    *,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    offload: bool = False,
) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters; only matrices decay, biases and norms do not.

    The learning rate is set before every step by `learning_rate_at`. `offload` keeps the moments in
    CPU memory (`offloaded_adamw`), with the same numbers and the same saved state.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decay = [p for _, p in named if p.ndim >= 2]
    rest = [p for _, p in named if p.ndim < 2]
    groups = [
        {"params": decay, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    trained = [group for group in groups if group["params"]]
    if offload:
        return OffloadedAdamW(trained, lr=0.0, betas=betas, eps=eps)
    return torch.optim.AdamW(trained, lr=0.0, betas=betas, eps=eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give every parameter group the same rate."""
    for group in optimizer.param_groups:
        group["lr"] = value
