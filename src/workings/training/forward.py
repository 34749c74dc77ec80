"""One forward pass of a microbatch: per-token scores of the responses, no full logits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from workings.errors import ModelError
from workings.models.weights import base_model
from workings.objectives.logprobs import token_logprobs
from workings.training.activation_checkpointing import RECOMPUTING
from workings.training.attention import Documents, attention_to, has_kernel
from workings.training.compute_weights import computing_dtype
from workings.training.packing import Layout, MicroBatch

WITHOUT_MASK: dict[Layout, Layout] = {"packed": "documents", "shared_prompt": "shared_documents"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseScores:
    """Scores of the response tokens, [B, T]; 0 (False) where `mask` is False.

    `logprobs` and `entropies` in nats at the sampling temperature, float32 (float64 for a float64
    model), with gradients; `is_top` bool, the target is the most likely token.
    """

    logprobs: Tensor
    entropies: Tensor
    is_top: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The vocabulary projection of a causal model and what the model does to its output."""

    weight: Tensor
    bias: Tensor | None
    scale: float
    softcap: float | None


def head_of(model: nn.Module) -> Head:
    """The head of a Hugging Face causal model; raises ModelError where it is not a plain linear."""
    inner = base_model(model)
    linear = inner.get_output_embeddings()
    if not isinstance(linear, nn.Linear) or type(linear).__module__.startswith("peft"):
        raise ModelError(
            f"the output head of {type(inner).__name__} is a {type(linear).__name__}; "
            "expected a plain torch.nn.Linear",
            hint="take lm_head out of model.lora.targets",
        )
    config = inner.config
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    scale /= float(getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(weight=linear.weight, bias=linear.bias, scale=scale, softcap=softcap)


def check_head(model: nn.Module) -> None:
    """Raise ModelError unless backbone plus head reproduce the model's own logits.

    A family that does something to its logits that `head_of` does not know would otherwise train
    on wrong probabilities without a sign.
    """
    inner = base_model(model)
    ids = torch.tensor([[1, 2]], device=inner.device)
    with torch.no_grad():
        wanted = inner(input_ids=ids, use_cache=False).logits.float()
        hidden = inner.base_model(input_ids=ids, use_cache=False).last_hidden_state
        head = head_of(model)
        logits = nn.functional.linear(hidden, head.weight, head.bias).float() * head.scale
        if head.softcap is not None:
            logits = head.softcap * torch.tanh(logits / head.softcap)
    gap = (logits - wanted).abs().max().item()
    if gap > 1e-3 * max(1.0, wanted.abs().max().item()):
        raise ModelError(
            f"{type(inner).__name__} changes its logits in a way this version does not know "
            f"(largest difference {gap:.3g}); its probabilities would be wrong in training"
        )


def choose_layout(
    model: nn.Module, wanted: str, *, grouped: bool, autocast: torch.dtype | None = None
) -> Layout:
    """The layout to pack with. `auto` takes shared prompts for groups, else packing.

    Models whose layers see only a window or keep a recurrent state cannot use a block mask; they
    get `padded`, and asking them for anything else raises ModelError. On a GPU, in half precision,
    packed rows need no mask.
    """
    inner = base_model(model)
    config = inner.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    implementation = getattr(config, "_attn_implementation", "sdpa")
    blocks = kinds == {"full_attention"} and not window and implementation in ("sdpa", "eager")
    if wanted != "auto" and wanted != "padded" and not blocks:
        raise ModelError(
            f"batch.layout={wanted} needs full attention in every layer under sdpa; this model has "
            f"{sorted(kinds)} under {implementation}",
            hint="set batch.layout=padded or auto",
        )
    if wanted == "padded" or not blocks:
        return "padded"
    layout: Layout = "shared_prompt" if grouped and wanted != "packed" else "packed"
    return WITHOUT_MASK[layout] if _attends_to_documents(inner, autocast) else layout


def _attends_to_documents(inner: Any, autocast: torch.dtype | None) -> bool:
    """True where torch's variable-length attention can stand in for the model's own."""
    config = inner.config
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return (
        has_kernel(inner.device, autocast or inner.dtype, head_dim)
        and config._attn_implementation == "sdpa"
        and getattr(inner, "_supports_attention_backend", False)
        and not getattr(config, "attention_dropout", 0.0)
    )


def response_scores(
    model: nn.Module,
    batch: MicroBatch,
    *,
    temperature: float = 1.0,
    autocast: torch.dtype | None = None,
    chunk_bytes: int | None = None,
) -> ResponseScores:
    """Scores of every trained token of a microbatch; the caller sets gradient and train mode.

    `autocast` is the dtype of the arithmetic; in a block of `compute_weights` the weights are in it
    already. Nothing in here waits for the device.
    """
    inner = base_model(model)
    mask = batch.attention_mask
    if mask is not None and getattr(inner.config, "_attn_implementation", "sdpa") == "eager":
        dtype = autocast or next(inner.parameters()).dtype
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    casts = autocast is not None and computing_dtype(model) is None
    context = (
        torch.autocast(batch.input_ids.device.type, dtype=autocast)
        if casts
        else contextlib.nullcontext()
    )
    with context, attention_to(_seen(inner, batch), inner.config) as documents:
        hidden = inner.base_model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=mask,
            use_cache=False,
            **documents,
        ).last_hidden_state
    hidden = _gathered(hidden.flatten(0, 1), batch.sources.flatten()[batch.trained])
    if autocast is not None:
        hidden = hidden.to(autocast)
    head = head_of(model)
    scores = token_logprobs(
        hidden,
        batch.targets.flatten()[batch.trained],
        head_weight=head.weight,
        head_bias=head.bias,
        temperature=temperature,
        logit_scale=head.scale,
        logit_softcap=head.softcap,
        chunk_bytes=chunk_bytes,
        keeps_logits=inner not in RECOMPUTING,
    )
    return ResponseScores(
        logprobs=_spread(scores.logprobs, batch),
        entropies=_spread(scores.entropies, batch),
        is_top=_spread(scores.is_top, batch),
    )


def _gathered(hidden: Tensor, places: Tensor) -> Tensor:
    """The rows of `hidden` at `places`, whose gradients are summed in float32 or wider.

    The last token of a prompt predicts the first one of every answer to it. In half precision each
    of their gradients would round the sum, and which came first, which is chance on a GPU, would
    show.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    return hidden.to(wide).index_select(0, places).to(hidden.dtype)


def _seen(inner: Any, batch: MicroBatch) -> Documents | Literal["rows"] | None:
    """What the layers attend to; None leaves it to transformers.

    It would look for packed rows among the positions of plain ones, and wait for the device.
    """
    plain = batch.attention_mask is None and batch.input_ids.is_cuda
    if batch.documents is None and plain and inner.config._attn_implementation == "sdpa":
        return "rows" if getattr(inner, "_supports_attention_backend", False) else None
    return batch.documents


def _spread(values: Tensor, batch: MicroBatch) -> Tensor:
    """[N] values of the scored tokens at their places of [B, T], 0 where the mask is False."""
    table = torch.zeros(batch.mask.numel(), dtype=values.dtype, device=values.device)
    table = table.index_copy(0, batch.trained, values).view(batch.mask.shape)
    return torch.where(batch.mask, table, torch.zeros((), dtype=values.dtype, device=values.device))
