"""Several linear maps of one input as one product, forward and backward.

Query, key and value are three products of the same rows; two of them are so narrow that a GPU is
mostly idle, and in the backward pass their gradients of the input are added up by kernels of their
own. Where the weights lie one behind the other, as `compute_weights` puts them, they are read as
the one matrix that they are; elsewhere they are copied together first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn


def joint_linear(x: Tensor, maps: Sequence[nn.Module]) -> Tensor:
    """The outputs of `maps` side by side, [tokens, all columns] and differentiable.

    `x` is [tokens, width]. Maps that are more than linear (adapters) are called one by one.
    """
    if not are_plain(maps) or torch.is_autocast_enabled(x.device.type):
        return torch.cat([one(x) for one in maps], dim=-1)
    plain = cast(Sequence[nn.Linear], maps)
    weights = [one.weight for one in plain]
    biases = [one.bias for one in plain if one.bias is not None]
    outputs: Tensor = _JointLinear.apply(x, len(weights), *weights, *biases)  # type: ignore[no-untyped-call]
    return outputs


def are_plain(maps: Sequence[nn.Module]) -> bool:
    """True for linear maps without adapters, with a bias each or none at all."""
    linear = [one for one in maps if type(one) is nn.Linear]
    return len(linear) == len(maps) and len({one.bias is not None for one in linear}) == 1


class _JointLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *tensors: Tensor) -> Tensor:
        weights, biases = tensors[:count], tensors[count:]
        ctx.save_for_backward(x, *weights)
        return nn.functional.linear(x, joined(weights), joined(biases) if biases else None)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, *weights = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_x = grad @ joined(weights) if wanted[0] else None
        return (of_x, None, *gradients_of_maps(grad, lambda: x, weights, wanted[2:]))


def gradients_of_maps(
    of_outputs: Tensor,
    inputs: Callable[[], Tensor],
    weights: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of the weights, then of the biases, where `wanted`; `inputs` are asked for then."""
    sizes = [weight.shape[0] for weight in weights]
    count = len(weights)
    found: list[Tensor | None] = [None] * len(wanted)
    if any(wanted[:count]):
        found[:count] = torch.split(of_outputs.T @ inputs(), sizes)
    if any(wanted[count:]):
        found[count:] = torch.split(of_outputs.sum(dim=0), sizes)
    return found


def joined(parts: Sequence[Tensor]) -> Tensor:
    """`torch.cat(parts)` without a copy where they lie one behind the other in memory."""
    first = parts[0]
    place = first.storage_offset()
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        if (
            part.untyped_storage().data_ptr() != storage
            or part.storage_offset() != place
            or not part.is_contiguous()
        ):
            return torch.cat(list(parts))
        place += part.numel()
    rows = sum(part.shape[0] for part in parts)
    return first.detach().as_strided((rows, *first.shape[1:]), first.stride())
