"""The gated product of a feed-forward layer, silu(gate) * up, with its gradients in one pass.

With s = sigmoid(gate) and a gradient g of the product: d gate = g up s (1 + gate (1 - s)) and
d up = g gate s. silu(gate) is rounded to the dtype before it is multiplied, as in transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workings.rollout.paged.kernels.activation import silu_and_multiply


def gated(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`, [tokens, width] and differentiable, of both side by side.

    `gate_up` is floating [tokens, 2 width], the gate first.
    """
    product: Tensor = _Gated.apply(gate_up)  # type: ignore[no-untyped-call]
    return product


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return silu_and_multiply(gate_up)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        return backward(grads[0], gate_up)


def backward(of_product: Tensor, gate_up: Tensor) -> Tensor:
    """The gradient of both sides, [tokens, 2 width]."""
    return backward_and_product(of_product, gate_up, again=False)[0]


def backward_and_product(
    of_product: Tensor, gate_up: Tensor, *, again: bool = True
) -> tuple[Tensor, Tensor | None]:
    """The gradient of both sides, and where `again`, the product once more."""
    if gate_up.is_cuda:
        from workings.training.fused import gated_triton

        return gated_triton.backward(of_product, gate_up, again=again)
    product = silu_and_multiply(gate_up) if again else None
    precise = torch.float64 if gate_up.dtype == torch.float64 else torch.float32
    gate, up = gate_up.to(precise).chunk(2, dim=-1)
    given = of_product.to(precise)
    share = torch.sigmoid(gate)
    of_gate = given * up * share * (1 + gate * (1 - share))
    return torch.cat([of_gate, given * gate * share], dim=-1).to(gate_up.dtype), product
