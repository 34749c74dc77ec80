"""The gate of a Llama-style feed-forward block: `silu(gate) * up` of one fused projection."""

from __future__ import annotations

import torch


def silu_and_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up` [tokens, width], silu rounded to the dtype first, as transformers does.

    Args:
        gate_up: floating [tokens, 2 * width], contiguous; the gate is the first half.
    """
    if gate_up.is_cuda:
        from workings.rollout.paged.kernels import activation_triton

        return activation_triton.silu_and_multiply(gate_up)
    return silu_and_multiply_torch(gate_up)


def silu_and_multiply_torch(gate_up: torch.Tensor) -> torch.Tensor:
    """The definition of `silu_and_multiply`, in torch."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
