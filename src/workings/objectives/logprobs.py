"""Log-probabilities and entropies of chosen tokens, without a full float32 logits tensor.

For N tokens and a vocabulary of V, plain code holds several [N, V] float32 tensors: at N = 8,192
and V = 150,000 each is 4.9 GB. Here the vocabulary projection runs over chunks of tokens, forward
and backward, so the extra memory is a few [chunk, V] tensors whatever N is. On a GPU, in half
precision, `logprobs_triton.py` computes the same in fewer passes over each chunk.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workings.objectives.logits_memory import DEFAULT_CHUNK_BYTES

HALF = (torch.bfloat16, torch.float16)


class TokenScores(NamedTuple):
    """Scores of N target tokens, each [N]; the first two carry gradients.

    `logprobs` and `entropies` are in nats, float32 (float64 for float64 input), at the sampling
    temperature; `is_top` says whether the target is the most likely token.
    """

    logprobs: Tensor
    entropies: Tensor
    is_top: Tensor


def compute_entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits) over the last axis, in nats, float32 or wider.

    `logits` [..., V] gives [...]. A logit of -inf contributes 0 (objectives reference, section 7).

    >>> round(compute_entropy(torch.zeros(8, dtype=torch.float64)).item(), 6)
    2.079442
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logprobs = torch.log_softmax(logits, dim=-1)
    probabilities = logprobs.exp()
    entropy: Tensor = -torch.where(probabilities > 0, probabilities * logprobs, 0.0).sum(-1)
    return entropy


def selective_log_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each label: `logits` [..., V] and `labels` [...] give [...], float32.

    Equal to `log_softmax(logits)[label]` without building the full log-softmax.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.logsumexp(logits, dim=-1)


def token_logprobs(
    hidden: Tensor,
    targets: Tensor,
    *,
    head_weight: Tensor,
    head_bias: Tensor | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    chunk_bytes: int | None = None,
    keeps_logits: bool = True,
) -> TokenScores:
    """Log-probability and entropy of each target token under softmax(logits / temperature).

    Args:
        hidden: [N, D], the last hidden states that predict the targets.
        targets: [N] int64.
        head_weight, head_bias: the vocabulary projection, [V, D] and [V].
        temperature: of sampling; both results are at this temperature.
        logit_scale: multiplies the logits (Cohere, Granite); applied before the soft cap.
        logit_softcap: cap * tanh(logits / cap) where the model has one (Gemma 2).
        chunk_bytes: size of one [chunk, V] tensor, of which a few live at a time; None takes what
            suits the device.
        keeps_logits: from forward to backward pass, as far as the memory of a GPU is large; else
            they are computed again, in smaller chunks.

    Gradients flow through log-probabilities and entropies, to `hidden` and to the head. Logits are
    computed in the dtype of `hidden` and reduced in float32.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature}; expected a value above 0")
    if hidden.is_cuda and hidden.dtype in HALF and has_triton():
        from workings.objectives.logprobs_triton import Shape, fused_logprobs

        shape = Shape(
            inverse_temperature=1.0 / temperature, scale=logit_scale, softcap=logit_softcap
        )
        return TokenScores(
            *fused_logprobs(
                *(hidden, targets, head_weight, head_bias, shape),
                chunk_bytes=chunk_bytes,
                keeps_logits=keeps_logits,
            )
        )
    chunk_bytes = DEFAULT_CHUNK_BYTES if chunk_bytes is None else chunk_bytes
    num_rows = max(1, chunk_bytes // (4 * head_weight.shape[0]))
    scores = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden,
        targets,
        head_weight,
        head_bias,
        1.0 / temperature,
        logit_scale,
        logit_softcap,
        num_rows,
    )
    return TokenScores(*scores)


@functools.cache
@functools.cache
def has_triton() -> bool:
    """True where Triton is installed, which torch brings with CUDA on Linux."""
    return importlib.util.find_spec("triton") is not None


class _ChunkedLogprobs(torch.autograd.Function):
    """Chunked vocabulary projection; the backward pass computes each chunk's logits again.

    The last chunk's probabilities are kept from the forward pass: they fit the memory bound
    anyway, and a small microbatch is then never projected twice.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        inverse_temperature: float,
        scale: float,
        softcap: float | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.head = _Head(weight, bias, hidden.dtype, inverse_temperature, scale, softcap)
        ctx.chunk = chunk
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logprobs = torch.empty(hidden.shape[0], dtype=dtype, device=hidden.device)
        entropies = torch.empty_like(logprobs)
        normalisers = torch.empty_like(logprobs)
        is_top = torch.empty(hidden.shape[0], dtype=torch.bool, device=hidden.device)
        needs_grad = any(ctx.needs_input_grad)
        kept = None
        for start in range(0, hidden.shape[0], chunk):
            rows = slice(start, start + chunk)
            logits = ctx.head.logits(hidden[rows])
            normalisers[rows] = torch.logsumexp(logits, dim=-1)
            chosen = logits.gather(-1, targets[rows, None]).squeeze(-1)
            is_top[rows] = chosen >= logits.amax(-1)
            logprobs[rows] = chosen - normalisers[rows]
            log_p = logits.sub_(normalisers[rows, None])
            p = log_p.exp()
            # entr(0) is 0, and a sum keeps in float32 what a dot product over V terms would lose.
            entropies[rows] = torch.special.entr(p, out=log_p).sum(-1)
            kept = p if needs_grad else None
        ctx.kept = kept
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
        if ctx.needs_input_grad[2]:
            grad_weight = torch.zeros_like(weight, dtype=sum_dtype(weight))
        if bias is not None and ctx.needs_input_grad[3]:
            grad_bias = torch.zeros_like(bias, dtype=sum_dtype(bias))
        last = (hidden.shape[0] - 1) // ctx.chunk * ctx.chunk
        for start in reversed(range(0, hidden.shape[0], ctx.chunk)):
            rows = slice(start, start + ctx.chunk)
            if start == last and ctx.kept is not None:
                p, ctx.kept = ctx.kept, None
            else:
                p = head.logits(hidden[rows]).sub_(normalisers[rows, None]).exp_()
            # d logprob / d logit_j = 1[j = target] - p_j;  d H / d logit_j = -p_j (log p_j + H)
            if grad_entropies is not None:
                slope = p.log().clamp_(min=-1e4).add_(entropies[rows, None])
                slope.mul_(grad_entropies[rows, None]).add_(grad_logprobs[rows, None])
                grad = p.mul_(slope).neg_()
            else:
                grad = p.mul_(-grad_logprobs[rows, None])
            grad.scatter_add_(-1, targets[rows, None], grad_logprobs[rows, None].to(grad.dtype))
            grad = head.grad_raw_logits(grad, hidden[rows])
            if grad_hidden is not None:
                grad_hidden[rows] = grad @ head.weight
            if grad_weight is not None:
                if grad.dtype == grad_weight.dtype:
                    grad_weight.addmm_(grad.T, hidden[rows])
                else:
                    grad_weight += (grad.T @ hidden[rows]).to(grad_weight.dtype)
            if grad_bias is not None:
                grad_bias += grad.sum(0).to(grad_bias.dtype)
        return grad_hidden, None, grad_weight, grad_bias, None, None, None, None


def sum_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype that a gradient is summed over chunks in: float32 for narrower parameters.

    autograd rounds it to the dtype that the parameter wants (`Tensor.grad_dtype`).
    """
    return torch.promote_types(parameter.dtype, torch.float32)


class _Head:
    """The vocabulary projection with temperature, scale and soft cap, and its derivative."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        inverse_temperature: float,
        scale: float,
        softcap: float | None,
    ) -> None:
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.factor = inverse_temperature
        self.scale = scale
        self.softcap = softcap

    def _raw(self, hidden: Tensor) -> Tensor:
        raw = torch.nn.functional.linear(hidden, self.weight, self.bias)
        return raw if raw.dtype == torch.float64 else raw.float()

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, V] at the sampling temperature, float32 (float64 for float64 input)."""
        raw = self._raw(hidden)
        if self.softcap is None:
            return raw.mul_(self.scale * self.factor)
        return raw.mul_(self.scale / self.softcap).tanh_().mul_(self.softcap * self.factor)

    def grad_raw_logits(self, grad: Tensor, hidden: Tensor) -> Tensor:
        """Gradient in the projection's output, given the gradient in `logits`; dtype of hidden."""
        if self.softcap is None:
            grad = grad.mul_(self.scale * self.factor)
        else:
            tanh = self._raw(hidden).mul_(self.scale / self.softcap).tanh_()
            grad = grad.mul_((1 - tanh.square_()).mul_(self.scale * self.factor))
        return grad.to(hidden.dtype)
