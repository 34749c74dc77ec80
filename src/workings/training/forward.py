"""One forward pass of a microbatch: per-token scores of the responses, no full logits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workings.errors import ModelError
from workings.models.weights import base_model
from workings.objectives.logprobs import DEFAULT_CHUNK_BYTES, token_logprobs
from workings.training.packing import Layout, MicroBatch


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


def choose_layout(model: nn.Module, wanted: str, *, grouped: bool) -> Layout:
    """The layout to pack with. `auto` takes shared prompts for groups, else packing.

    Models whose layers see only a window or keep a recurrent state cannot use a block mask; they
    get `padded`, and asking them for anything else raises ModelError.
    """
    config = base_model(model).config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    implementation = getattr(config, "_attn_implementation", "sdpa")
    blocks = kinds == {"full_attention"} and not window and implementation in ("sdpa", "eager")
    if wanted == "auto":
        return ("shared_prompt" if grouped else "packed") if blocks else "padded"
    if wanted != "padded" and not blocks:
        raise ModelError(
            f"batch.layout={wanted} needs full attention in every layer under sdpa; this model has "
            f"{sorted(kinds)} under {implementation}",
            hint="set batch.layout=padded or auto",
        )
    if wanted == "shared_prompt" and not grouped:
        return "packed"
    return wanted  # type: ignore[return-value]


def response_scores(
    model: nn.Module,
    batch: MicroBatch,
    *,
    temperature: float = 1.0,
    autocast: torch.dtype | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> ResponseScores:
    """Scores of every trained token of a microbatch; the caller sets gradient and train mode."""
    inner = base_model(model)
    mask = batch.attention_mask
    if mask is not None and getattr(inner.config, "_attn_implementation", "sdpa") == "eager":
        dtype = autocast or next(inner.parameters()).dtype
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    context = (
        torch.autocast(batch.input_ids.device.type, dtype=autocast)
        if autocast is not None
        else contextlib.nullcontext()
    )
    with context:
        hidden = inner.base_model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
    hidden = hidden.flatten(0, 1).index_select(0, batch.sources[batch.mask])
    if autocast is not None:
        hidden = hidden.to(autocast)
    head = head_of(model)
    scores = token_logprobs(
        hidden,
        batch.targets[batch.mask],
        head_weight=head.weight,
        head_bias=head.bias,
        temperature=temperature,
        logit_scale=head.scale,
        logit_softcap=head.softcap,
        chunk_bytes=chunk_bytes,
    )
    return ResponseScores(
        logprobs=_spread(scores.logprobs, batch.mask),
        entropies=_spread(scores.entropies, batch.mask),
        is_top=_spread(scores.is_top, batch.mask),
    )


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """[N] values at the True places of a [B, T] mask, 0 elsewhere."""
    table = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
    return table.masked_scatter(mask, values)
