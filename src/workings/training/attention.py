"""Attention over packed rows: each document sees itself, and no mask tensor is built.

A lane [1, W] holds documents one behind the other. torch's variable-length FlashAttention reads
their boundaries, so the work is that of the documents, not of the lane's square. Prompts that
several answers share stand at the beginning of the lane; an answer's attention is then computed in
two parts, over itself and over its prompt, which are joined by their normalisers. This is what ring
attention does with parts of one long document (Liu et al., 2310.01889, section 3), and the backward
pass of FlashAttention is right for each part once it is given the joined output and normaliser.

On CUDA, in half precision, the two primitives are torch's own kernels; elsewhere they are written
out in torch, which is also the reference that the tests compare with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from workings.errors import ModelError
from workings.objectives.logprobs import HALF

NAME = "workings_documents"
WIDEST_HEAD, HEAD_STEP = 256, 8
"""Of a head, what FlashAttention computes: widths that are multiples, up to the widest."""


class Documents(NamedTuple):
    """Where the documents of a lane of W tokens begin and end.

    Boundaries are int32 and cumulative, from 0: three documents of 4, 2 and 5 tokens are
    [0, 4, 6, 11].

    Attributes:
        pieces: cover the lane; a token sees the earlier ones of its piece.
        sizes: int64 on the CPU, so that reading it waits for nothing: tokens of the longest piece,
            longest prompt and longest stretch of answers, and of all shared prompts together.
        prompts: of the shared prompts, which stand at the beginning; None where there are none.
        answers: of the stretches behind them, counted from the end of the last prompt. The i-th
            stretch also sees all of the i-th prompt.
    """

    pieces: Tensor
    sizes: Tensor
    prompts: Tensor | None = None
    answers: Tensor | None = None


def has_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """True where torch's FlashAttention computes this, so that it need not be written out.

    >>> has_kernel(torch.device("cuda"), torch.bfloat16, 128)
    True
    >>> has_kernel(torch.device("cuda"), torch.float32, 128)
    False
    """
    fits = head_dim % HEAD_STEP == 0 and head_dim <= WIDEST_HEAD
    return device.type == "cuda" and dtype in HALF and fits


def document_attention(
    query: Tensor, key: Tensor, value: Tensor, documents: Documents, *, scale: float | None = None
) -> Tensor:
    """Attention of the tokens of one lane, [W, heads, head_dim] and differentiable.

    `query` [W, heads, head_dim]; `key` and `value` [W, key heads, head_dim], whose number of heads
    divides that of the queries. `scale` None is 1 / sqrt(head_dim).
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    output: Tensor = _attention(query, key, value, *documents, scale)[0]
    return output


def attention_of_layer(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    documents: Documents | Literal["rows"] | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(output [lanes, W, heads, head_dim], None), as transformers' attention functions return it.

    `documents` "rows" is a lane for each row, where plain causal attention is right. Raises
    ModelError where a layer does not hand on the documents, or asks for what they cannot do.
    """
    extra = [
        name for name in ("softcap", "s_aux", "position_bias", "sliding_window") if name in kwargs
    ]
    asked = [name for name in extra if kwargs[name] is not None] + ["dropout"] * bool(dropout)
    if documents is None or asked:
        what = f"asks for {', '.join(asked)}" if asked else "does not hand on where documents end"
        raise ModelError(
            f"the attention of {type(module).__name__} {what}, so packed rows need a mask",
            hint="set batch.layout=padded",
        )
    kind = query.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    if documents == "rows":
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )
        return output.transpose(1, 2).contiguous(), None
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return document_attention(query, key, value, documents, scale=scaling)[None], None


@contextmanager
def attention_to(
    documents: Documents | Literal["rows"] | None, config: Any
) -> Iterator[dict[str, Any]]:
    """What to call a model with this config with, so that its layers attend to `documents`.

    Without documents the model keeps its own attention, and the mask that goes with it.
    """
    if documents is None:
        yield {}
        return
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention_of_layer)
    own, config._attn_implementation = config._attn_implementation, NAME
    try:
        with _fastest_kernel() if documents == "rows" else nullcontext():
            yield {"documents": documents}
    finally:
        config._attn_implementation = own


def _fastest_kernel() -> AbstractContextManager[Any]:
    """cuDNN's attention first on a Hopper GPU, where torch would take its slower one."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        return nullcontext()
    kernels = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return sdpa_kernel([getattr(SDPBackend, name) for name in kernels], set_priority=True)


@torch.library.custom_op("workings::document_attention", mutates_args=())
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pieces: Tensor,
    sizes: Tensor,
    prompts: Tensor | None,
    answers: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Output [W, heads, head_dim] and its normalisers [heads, W], natural logs."""
    piece, prompt, answer, start = sizes.tolist()
    with torch.autocast(query.device.type, enabled=False):  # it would reach into the definition
        own = _Part(pieces, pieces, piece, piece, causal=True, scale=scale)
        output, normaliser = own.attend(query, key, value)
        if prompts is not None and answers is not None:
            part = _Part(answers, prompts, answer, prompt, causal=False, scale=scale)
            found = part.attend(query[start:], key[:start], value[:start])
            _join(output[start:], normaliser[:, start:], *found)
    return output, normaliser


def _join(output: Tensor, normaliser: Tensor, other: Tensor, other_normaliser: Tensor) -> None:
    """Make attention over one set of keys attention over both sets, in place."""
    total = torch.logaddexp(normaliser, other_normaliser)
    share = (other_normaliser - total).exp().T.unsqueeze(-1)
    output.copy_(torch.lerp(output.to(share.dtype), other.to(share.dtype), share))
    normaliser.copy_(total)


@torch.library.custom_op("workings::document_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    normaliser: Tensor,
    pieces: Tensor,
    sizes: Tensor,
    prompts: Tensor | None,
    answers: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value."""
    piece, prompt, answer, start = sizes.tolist()
    with torch.autocast(query.device.type, enabled=False):
        own = _Part(pieces, pieces, piece, piece, causal=True, scale=scale)
        of_query, of_key, of_value = own.backward(grad, query, key, value, output, normaliser)
        if prompts is not None and answers is not None:
            part = _Part(answers, prompts, answer, prompt, causal=False, scale=scale)
            found = part.backward(
                grad[start:],
                query[start:],
                key[:start],
                value[:start],
                output[start:],
                normaliser[:, start:].contiguous(),
            )
            of_query[start:] += found[0]
            of_key[:start] += found[1]
            of_value[:start] += found[2]
    return of_query, of_key, of_value


@_attention.register_fake
def _(query: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    width, heads, _ = query.shape
    dtype = _precise(query)
    return query.new_empty(query.shape), query.new_empty((heads, width), dtype=dtype)


@_attention_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, value))  # type: ignore[return-value]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.workings.document_attention_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.scale
    )
    return (*grads, None, None, None, None, None)


_attention.register_autograd(_differentiate, setup_context=_remember)
OPERATOR = torch.ops.workings.document_attention.default


class _Part:
    """Stretches of queries, each over a stretch of keys: the two primitives on every device."""

    def __init__(
        self,
        queries: Tensor,
        keys: Tensor,
        longest_query: int,
        longest_key: int,
        *,
        causal: bool,
        scale: float,
    ) -> None:
        self.bounds = (queries, keys)
        self.longest = (longest_query, longest_key)
        self.causal = causal
        self.scale = scale

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Output [queries, heads, head_dim] and normalisers [heads, queries]."""
        if _by_kernel(query):
            output, normaliser, *_ = torch.ops.aten._flash_attention_forward(
                query,
                key,
                value,
                *self.bounds,
                *self.longest,
                0.0,
                self.causal,
                False,
                scale=self.scale,
            )
            return output.contiguous(), normaliser
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        normaliser = query.new_empty(query.shape[1::-1], dtype=_precise(query))
        for rows, columns in self._stretches():
            scores = self._scores(query[rows], key[columns])
            normaliser[:, rows] = scores.logsumexp(-1).flatten(0, 1)
            shares = scores.softmax(-1)
            output[rows] = _by_token(shares @ _by_head(value[columns], 1)).to(output.dtype)
        return output, normaliser

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        normaliser: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of this part, given output and normalisers of the whole attention.

        With P = exp(S - normaliser): dV = P' dO, dS = P * (dO V' - sum(dO * O)) (FlashAttention-2,
        2307.08691, algorithm 2).
        """
        if _by_kernel(query):
            random = torch.zeros(2, dtype=torch.uint64, device=query.device)
            unused = torch.empty(0, device=query.device)
            grads = torch.ops.aten._flash_attention_backward(
                *(grad, query, key, value, output, normaliser, *self.bounds, *self.longest),
                *(0.0, self.causal, random, unused),
                scale=self.scale,
            )
            return tuple(tensor.contiguous() for tensor in grads)
        tensors = (query, key, value)
        of_query, of_key, of_value = (
            torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors
        )
        groups = query.shape[1] // key.shape[1]
        for rows, columns in self._stretches():
            of_output = _by_head(grad[rows], groups)
            own = normaliser[:, rows].reshape(-1, groups, rows.stop - rows.start, 1)
            shares = (self._scores(query[rows], key[columns]) - own).exp()
            mean = (of_output * _by_head(output[rows], groups)).sum(-1, keepdim=True)
            of_shares = of_output @ _by_head(value[columns], 1).mT
            of_scores = shares * (of_shares - mean) * self.scale
            of_query[rows] = _by_token(of_scores @ _by_head(key[columns], 1)).to(query.dtype)
            of_key[columns] = _summed(of_scores.mT @ _by_head(query[rows], groups)).to(key.dtype)
            of_value[columns] = _summed(shares.mT @ of_output).to(value.dtype)
        return of_query, of_key, of_value

    def _stretches(self) -> Iterator[tuple[slice, slice]]:
        queries, keys = (bounds.tolist() for bounds in self.bounds)
        for index in range(len(queries) - 1):
            yield slice(*queries[index : index + 2]), slice(*keys[index : index + 2])

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        """[key heads, queries of one key head, queries, keys], scaled, -inf where hidden."""
        scores = _by_head(query, query.shape[1] // key.shape[1]) @ _by_head(key, 1).mT * self.scale
        if self.causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores.masked_fill_(hidden, -math.inf)
        return scores


def _by_kernel(tensor: Tensor) -> bool:
    """True where the primitives on [tokens, heads, head_dim] like this one are kernels."""
    return has_kernel(tensor.device, tensor.dtype, tensor.shape[-1])


def _precise(tensor: Tensor) -> torch.dtype:
    """What sums are computed in: float32 in the kernels, float64 in the definition.

    Joining two parts rounds twice where one pass rounds once; a long product of ratios shows it.
    """
    return torch.float32 if _by_kernel(tensor) else torch.float64


def _by_head(tensor: Tensor, groups: int) -> Tensor:
    """[tokens, heads, head_dim] as [heads / groups, groups, tokens, head_dim], to sum with."""
    by_head = tensor.to(_precise(tensor)).movedim(1, 0)
    return by_head.reshape(-1, groups, *by_head.shape[1:])


def _by_token(tensor: Tensor) -> Tensor:
    """The inverse of `_by_head`."""
    return tensor.flatten(0, 1).movedim(0, 1)


def _summed(tensor: Tensor) -> Tensor:
    """A gradient of keys, summed over the query heads that share them: [keys, key heads, ...]."""
    return tensor.sum(1).movedim(0, 1)
