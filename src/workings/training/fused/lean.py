"""Parts of a layer that keep less: what is cheap is computed again in the backward pass.

Of a layer the outputs of its large products are kept. The norm before a product, and the gated
product before the last one, are one pass over memory each, and together more than a third of what
a layer keeps: here they are made once more when the gradient of the weights needs them, without
watching operators one by one as `torch.utils.checkpoint` does for any layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workings.rollout.paged.kernels.activation import silu_and_multiply
from workings.training.fused import gated, norm
from workings.training.fused.projection import gradients_of_maps, joined


def normed_product(
    delta: Tensor | None, stream: Tensor, weight: Tensor, eps: float, maps: Sequence[nn.Linear]
) -> tuple[Tensor, Tensor]:
    """(outputs of `maps` of the norm of the sum side by side, the sum) of `stream + delta`.

    As `add_rms_norm` and `joint_linear` after each other; `delta` None is zero.
    """
    weights = [one.weight for one in maps]
    biases = [one.bias for one in maps if one.bias is not None]
    found: tuple[Tensor, Tensor] = _NormedProduct.apply(  # type: ignore[no-untyped-call]
        delta, stream, weight, eps, len(weights), *weights, *biases
    )
    return found


def gated_product(gate_up: Tensor, down: nn.Linear) -> Tensor:
    """`down(gated(gate_up))`."""
    found: Tensor = _GatedProduct.apply(gate_up, down.weight)  # type: ignore[no-untyped-call]
    return found


class _NormedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor | None,
        stream: Tensor,
        weight: Tensor,
        eps: float,
        count: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        normed, total, scale = norm.forward(stream, delta, weight, eps)
        weights, biases = tensors[:count], tensors[count:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, scale, *weights)
        ctx.eps = eps
        outputs = nn.functional.linear(normed, joined(weights), joined(biases) if biases else None)
        return outputs, total.view_as(total) if delta is None else total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        of_outputs, of_total = grads
        total, weight, scale, *weights = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        found: list[Tensor | None] = [None] * (len(wanted) - 5)
        of_stream, of_weight = of_total, None
        if of_outputs is not None:

            def normed() -> Tensor:
                return norm.forward(total, None, weight, ctx.eps)[0]

            found = gradients_of_maps(of_outputs, normed, weights, wanted[5:])
            of_normed = of_outputs @ joined(weights)
            of_stream, of_weight = norm.backward(of_normed, of_total, total, weight, scale)
        return (of_stream if wanted[0] else None, of_stream, of_weight, None, None, *found)


class _GatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up, weight)
        return nn.functional.linear(silu_and_multiply(gate_up), weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (of_output,) = grads
        gate_up, weight = ctx.saved_tensors
        again = ctx.needs_input_grad[1]
        of_gate_up, product = gated.backward_and_product(of_output @ weight, gate_up, again=again)
        return of_gate_up, None if product is None else of_output.T @ product
