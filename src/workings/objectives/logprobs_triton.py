"""The chunked log-probabilities of `logprobs.py` for a GPU: the same numbers in fewer passes.

Each chunk of logits is written once by the projection, in half precision, and read once by a Triton
kernel that leaves the normaliser, the target's log-probability, the entropy and whether the target
is on top. In the backward pass a second kernel turns logits into their gradient where they stand.
Chunks within a memory budget are kept from forward to backward, so that they are not projected
twice.

Softmax sums run in float32. The entropy is `log s - t / s` with s = sum exp(x - m) and
t = sum (x - m) exp(x - m) for the largest logit m: both terms are small, where
`logsumexp - mean logit` would be the difference of two large numbers.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from workings.objectives.logits_memory import chunk_limits, usable_memory
from workings.objectives.logprobs import sum_dtype

BLOCK = 4096
LOWEST = tl.constexpr(-1.0e30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What becomes of a raw logit x: cap tanh(x scale / cap) / temperature, or without the cap."""

    inverse_temperature: float
    scale: float
    softcap: float | None


def fused_logprobs(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    chunk_bytes: int | None = None,
    kept_bytes: int | None = None,
    keeps_logits: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """(logprobs, entropies, is_top) of N targets, [N] each; float32, float32 and bool.

    Arguments as of `token_logprobs`; `hidden` is in half precision (float32 works too), and
    logits are computed in its dtype. `kept_bytes` bounds the logits kept for the backward pass.
    """
    chunk, kept = chunk_limits(usable_memory(hidden.device), keeps_logits=keeps_logits)
    chunk_bytes = chunk if chunk_bytes is None else chunk_bytes
    kept_bytes = kept if kept_bytes is None else kept_bytes
    row_bytes = hidden.element_size() * weight.shape[0]
    if hidden.shape[0] * row_bytes <= kept_bytes:
        chunk_bytes = kept_bytes
    scores: tuple[Tensor, Tensor, Tensor] = _FusedLogprobs.apply(
        *(hidden, targets, weight, bias, shape),
        *(max(1, chunk_bytes // row_bytes), kept_bytes // row_bytes),
    )
    return scores


class _FusedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        shape: Shape,
        chunk: int,
        most_kept: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.head = _Head(weight, bias, hidden.dtype, shape)
        ctx.chunks = _chunks(hidden.shape[0], chunk)
        ctx.kept = {}
        logprobs, entropies, normalisers = hidden.new_empty(
            (3, hidden.shape[0]), dtype=torch.float32
        ).unbind()
        is_top = torch.empty_like(logprobs, dtype=torch.bool)
        needs_grad = any(ctx.needs_input_grad)
        for rows in ctx.chunks:
            logits = ctx.head.raw(hidden[rows])
            found = (logprobs[rows], entropies[rows], normalisers[rows], is_top[rows])
            ctx.head.score(logits, targets[rows], *found)
            if needs_grad and rows.stop <= most_kept:
                ctx.kept[rows.start] = logits
            del logits  # before the next chunk is made
        ctx.save_for_backward(hidden, targets, weight, bias, normalisers, entropies)
        ctx.mark_non_differentiable(is_top)
        return logprobs, entropies, is_top

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        grad_logprobs, grad_entropies, _ = grad_outputs
        hidden, targets, weight, bias, normalisers, entropies = ctx.saved_tensors
        head: _Head = ctx.head
        if grad_logprobs is None:
            grad_logprobs = torch.zeros_like(normalisers)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = grad_bias = None
        for rows in ctx.chunks:
            logits = ctx.kept.pop(rows.start, None)
            logits = head.raw(hidden[rows]) if logits is None else logits
            head.differentiate(
                *(logits, targets[rows], normalisers[rows], entropies[rows]),
                *(grad_logprobs[rows], None if grad_entropies is None else grad_entropies[rows]),
            )
            if grad_hidden is not None:
                torch.mm(logits, head.weight, out=grad_hidden[rows])
            if ctx.needs_input_grad[2]:
                grad_weight = _add_product(grad_weight, logits.T, hidden[rows], sum_dtype(weight))
            if bias is not None and ctx.needs_input_grad[3]:
                part = logits.sum(0, dtype=sum_dtype(bias))
                grad_bias = part if grad_bias is None else grad_bias.add_(part)
            del logits
        if ctx.needs_input_grad[2] and grad_weight is None:
            grad_weight = torch.zeros_like(weight)
        if bias is not None and ctx.needs_input_grad[3] and grad_bias is None:
            grad_bias = torch.zeros_like(bias)
        return grad_hidden, None, grad_weight, grad_bias, None, None, None


class _Head:
    """The vocabulary projection and the two kernels that read its output."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, shape: Shape
    ) -> None:
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.shape = shape

    def raw(self, hidden: Tensor) -> Tensor:
        """[rows, V] in the dtype of `hidden`, before temperature, scale and cap."""
        return torch.nn.functional.linear(hidden, self.weight, self.bias)

    def score(
        self,
        logits: Tensor,
        targets: Tensor,
        logprobs: Tensor,
        entropies: Tensor,
        normalisers: Tensor,
        is_top: Tensor,
    ) -> None:
        """Fill the last four, [rows] each."""
        _score_kernel[(logits.shape[0],)](
            *(logits, targets, logprobs, entropies, normalisers, is_top),
            *(logits.stride(0), *self._constants),
            vocabulary=logits.shape[1],
            has_cap=self.shape.softcap is not None,
            block=BLOCK,
            num_warps=8,
        )

    def differentiate(
        self,
        logits: Tensor,
        targets: Tensor,
        normalisers: Tensor,
        entropies: Tensor,
        grad_logprobs: Tensor,
        grad_entropies: Tensor | None,
    ) -> None:
        """Turn raw logits into the gradient in them, in place."""
        _gradient_kernel[(logits.shape[0], triton.cdiv(logits.shape[1], BLOCK))](
            *(logits, targets, normalisers, entropies, grad_logprobs.contiguous()),
            grad_logprobs if grad_entropies is None else grad_entropies.contiguous(),
            *(logits.stride(0), *self._constants),
            vocabulary=logits.shape[1],
            has_cap=self.shape.softcap is not None,
            has_entropy=grad_entropies is not None,
            block=BLOCK,
            num_warps=8,
        )

    @property
    def _constants(self) -> tuple[float, float, float]:
        cap = 1.0 if self.shape.softcap is None else self.shape.softcap
        return self.shape.scale, cap, self.shape.inverse_temperature


def _chunks(num_rows: int, most: int) -> list[slice]:
    """Slices of `num_rows` rows, of equal size up to a multiple of 16, as few as `most` allows."""
    if num_rows == 0:
        return []
    even = -(-num_rows // -(-num_rows // most))
    size = min(most, -(-even // 16) * 16)
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """total + left @ right in `dtype`, added where `total` stands.

    On a GPU the sums of half-precision products are not rounded, and the product, which is as large
    as the head itself, is never held beside the total.
    """
    if left.is_cuda and dtype == torch.float32 and left.dtype != torch.float32:
        if total is None:
            return torch.mm(left, right, out_dtype=torch.float32)
        return torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    part = (left @ right).to(dtype)
    return part if total is None else total.add_(part)


@triton.jit
def _shaped(raw, scale, cap, inverse_temperature, has_cap: tl.constexpr):
    """The logit, and how fast it changes with the raw one.

    A logit of -inf becomes a finite one that has no share, so that 0 is what its entropy comes to;
    NaN stays NaN.
    """
    x = raw.to(tl.float32) * scale
    slope = scale * inverse_temperature
    if has_cap:
        tanh = 2 * tl.sigmoid(2 * x / cap) - 1
        x, slope = cap * tanh, slope * (1 - tanh * tanh)
    x = x * inverse_temperature
    return tl.where(x < LOWEST, LOWEST, x), slope


@triton.jit
def _score_kernel(
    logits_ptr,
    targets_ptr,
    logprobs_ptr,
    entropies_ptr,
    normalisers_ptr,
    is_top_ptr,
    stride,
    scale,
    cap,
    inverse_temperature,
    vocabulary: tl.constexpr,
    has_cap: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0)
    line = logits_ptr + row.to(tl.int64) * stride
    top = LOWEST
    s = tl.zeros([block], dtype=tl.float32)
    t = tl.zeros([block], dtype=tl.float32)
    for start in range(0, vocabulary, block):
        columns = start + tl.arange(0, block)
        raw = tl.load(line + columns, mask=columns < vocabulary, other=0.0)
        x, _ = _shaped(raw, scale, cap, inverse_temperature, has_cap)
        x = tl.where(columns < vocabulary, x, LOWEST)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shrink = tl.exp(top - higher)
        share = tl.exp(x - higher)
        t = (t + (top - higher) * s) * shrink + (x - higher) * share
        s = s * shrink + share
        top = higher
    total = tl.sum(s, axis=0)
    log_total = tl.log(total)
    raw = tl.load(line + tl.load(targets_ptr + row))
    chosen, _ = _shaped(raw, scale, cap, inverse_temperature, has_cap)
    tl.store(logprobs_ptr + row, chosen - (top + log_total))
    tl.store(entropies_ptr + row, log_total - tl.sum(t, axis=0) / total)
    tl.store(normalisers_ptr + row, top + log_total)
    tl.store(is_top_ptr + row, chosen >= top)


@triton.jit
def _gradient_kernel(
    logits_ptr,
    targets_ptr,
    normalisers_ptr,
    entropies_ptr,
    grad_logprobs_ptr,
    grad_entropies_ptr,
    stride,
    scale,
    cap,
    inverse_temperature,
    vocabulary: tl.constexpr,
    has_cap: tl.constexpr,
    has_entropy: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    places = logits_ptr + row.to(tl.int64) * stride + columns
    raw = tl.load(places, mask=columns < vocabulary, other=0.0)
    x, slope = _shaped(raw, scale, cap, inverse_temperature, has_cap)
    log_p = x - tl.load(normalisers_ptr + row)
    p = tl.exp(log_p)
    of_logprob = tl.load(grad_logprobs_ptr + row).to(tl.float32)
    grad = tl.where(columns == tl.load(targets_ptr + row), of_logprob, 0.0) - p * of_logprob
    if has_entropy:
        of_entropy = tl.load(grad_entropies_ptr + row).to(tl.float32)
        grad -= p * (log_p + tl.load(entropies_ptr + row)) * of_entropy
    tl.store(places, (grad * slope).to(raw.dtype), mask=columns < vocabulary)
