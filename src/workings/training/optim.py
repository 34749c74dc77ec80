"""The optimizers, their parameter groups and the learning-rate schedules."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import nn

from workings.config.sections import OptimizerConfig
from workings.errors import TrainingError
from workings.models.bits_and_bytes import adamw_8bit
from workings.training.fused.adamw import FusedAdamW
from workings.training.offloaded_adamw import OffloadedAdamW

Schedule = Literal["constant", "linear", "cosine"]
OptimizerName = Literal["adamw", "adamw_8bit", "rmsprop"]


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
    offload_gradients: bool = False,
) -> torch.optim.Optimizer:
    """The optimizer of a run over the trainable parameters, at a learning rate of 0.

    adamw: see `build_adamw`. adamw_8bit: the same with moments in 8 bits, over float32 weights
    (`models.bits_and_bytes`). rmsprop: torch's, not centred and without momentum; it reads
    `rmsprop_alpha` and `eps`, and does not decay weights. Only adamw offloads.

    Raises ValueError for settings that the optimizer does not read, and TrainingError for weights
    that it would lose updates of.
    """
    known = get_args(OptimizerName)
    if name not in known:
        raise ValueError(f"unknown optimizer {name!r}; expected {', '.join(known)}")
    if name != "adamw" and (offload or offload_gradients):
        raise ValueError(f"{name} with offload={offload or offload_gradients}; not offered")
    if name == "rmsprop" and weight_decay:
        raise ValueError(f"rmsprop with weight_decay={weight_decay}; not offered")
    if name == "adamw":
        return build_adamw(
            model,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            offload=offload,
            offload_gradients=offload_gradients,
        )
    groups = decayed_groups(model, weight_decay)
    _refuse_narrow_weights(groups)
    if name == "adamw_8bit":
        return adamw_8bit(groups, betas=betas, eps=eps)
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.RMSprop(trained, lr=0.0, alpha=rmsprop_alpha, eps=eps)


def configured_optimizer(model: nn.Module, settings: OptimizerConfig) -> torch.optim.Optimizer:
    """`build_optimizer` as a run's configuration says."""
    return build_optimizer(
        model,
        name=settings.name,
        betas=settings.betas,
        rmsprop_alpha=settings.rmsprop_alpha,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        offload=settings.offload,
        offload_gradients=settings.offload_gradients,
    )


def build_adamw(
    model: nn.Module,
    *,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    offload: bool = False,
    offload_gradients: bool = False,
) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters; only matrices decay, biases and norms do not.

    The learning rate is set before every step by `learning_rate_at`. `offload` keeps the moments in
    CPU memory, and float32 masters of bfloat16 weights with them (`offloaded_adamw`); the numbers
    and the saved state are the same. `offload_gradients` keeps the gradients there too.
    """
    groups = decayed_groups(model, weight_decay)
    if offload:
        return OffloadedAdamW(
            groups, lr=0.0, betas=betas, eps=eps, offload_gradients=offload_gradients
        )
    _refuse_narrow_weights(groups)
    return FusedAdamW(groups, lr=0.0, betas=betas, eps=eps)


def decayed_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters in groups: matrices decay, biases and norms do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _refuse_narrow_weights(groups: list[dict[str, Any]]) -> None:
    narrow = {p.dtype for group in groups for p in group["params"] if p.dtype.itemsize < 4}
    if narrow:
        raise TrainingError(
            f"the trained weights are {', '.join(map(str, narrow))}; this optimizer would round "
            "small updates away",
            hint="load them in float32, or set optimizer.offload=true, which keeps float32 masters",
        )


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give every parameter group the same rate."""
    for group in optimizer.param_groups:
        group["lr"] = value
