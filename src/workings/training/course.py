"""The functions of the CS336 alignment assignment, with its names, shapes and scalings.

They are fronts: the formulas are those of `workings.objectives`, which the trainers use too. What
differs is the contract. These functions scale by `gradient_accumulation_steps` and call `backward`
themselves, where the trainers divide by counts of the whole step; and a row without a single masked
token gives NaN here, where the trainers leave it out.

Shapes: B rows of a microbatch, S positions after the shift. Policy quantities are [B, S]; rewards
and advantages are [B, 1] in losses and [B] out of the group normaliser. A mask is bool or 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from workings.data.packed import encode_document
from workings.data.templates import load_template
from workings.data.tokenizer import Tokenizer
from workings.models.weights import base_model
from workings.objectives import masked
from workings.objectives.advantages import group_advantages
from workings.objectives.logprobs import compute_entropy as entropy_of_logits
from workings.objectives.logprobs import selective_log_softmax, token_logprobs
from workings.objectives.preference import preference_loss
from workings.objectives.ratios import log_ratio
from workings.objectives.reductions import StepTotals
from workings.objectives.supervised import sft_loss
from workings.objectives.surrogates import (
    clipped_tokens,
    policy_gradient,
    ppo_clip,
    ratio_surrogate,
)
from workings.training.forward import check_head, head_of

LossType = Literal["no_baseline", "reinforce_with_baseline", "grpo_clip", "grpo_no_clip"]
RewardFunction = Callable[[str, str], Mapping[str, float]]

_ENTROPY_CHUNK_BYTES = 1 << 27
_CHECKED: WeakSet[nn.Module] = WeakSet()
_NEEDS: dict[str, tuple[str, ...]] = {
    "no_baseline": ("raw_rewards",),
    "reinforce_with_baseline": ("advantages",),
    "grpo_clip": ("advantages", "old_log_probs", "cliprange"),
    "grpo_no_clip": ("advantages", "old_log_probs"),
}


# ------------------------------------------------------------------------------------- tokens


def tokenize_prompt_and_output(
    prompt_strs: Sequence[str], output_strs: Sequence[str], tokenizer: Tokenizer
) -> dict[str, Tensor]:
    """{"input_ids", "labels", "response_mask"}, each [B, L - 1] with L the longest row (1.1).

    Prompt and output are encoded apart, without special tokens, and their ids joined; rows are
    padded on the right, then shifted. The mask is true where `labels` holds a token of the output.
    The pad token fills up, EOS where there is none. ValueError for no rows and for unequal numbers.
    """
    if len(prompt_strs) != len(output_strs) or not prompt_strs:
        raise ValueError(
            f"{len(prompt_strs)} prompts and {len(output_strs)} outputs; expected the same number, "
            "at least 1"
        )
    pad = tokenizer.pad_token_id
    pad = tokenizer.eos_token_id if pad is None else pad
    if pad is None:
        raise ValueError("the tokenizer has neither a pad nor an EOS token to fill rows up with")
    pairs = [
        (
            tokenizer.encode(prompt, add_special_tokens=False),
            tokenizer.encode(output, add_special_tokens=False),
        )
        for prompt, output in zip(prompt_strs, output_strs, strict=True)
    ]
    length = max(len(prompt) + len(output) for prompt, output in pairs)
    ids = torch.full((len(pairs), length), pad, dtype=torch.int64)
    is_response = torch.zeros(ids.shape, dtype=torch.bool)
    for row, (prompt, output) in enumerate(pairs):
        ids[row, : len(prompt) + len(output)] = torch.tensor([*prompt, *output], dtype=torch.int64)
        is_response[row, len(prompt) : len(prompt) + len(output)] = True
    return {
        "input_ids": ids[:, :-1],
        "labels": ids[:, 1:],
        "response_mask": is_response[:, 1:],
    }


def compute_entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits) in nats, [..., V] gives [...], float32 or wider (1.2).

    It runs over chunks of positions, so that no second [..., V] tensor lives beside the logits.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    rows = max(1, _ENTROPY_CHUNK_BYTES // (4 * logits.shape[-1]))
    parts = [entropy_of_logits(chunk) for chunk in torch.split(flat, rows)]
    return torch.cat(parts).reshape(logits.shape[:-1])


def get_response_log_probs(
    model: nn.Module, input_ids: Tensor, labels: Tensor, return_token_entropy: bool = False
) -> dict[str, Tensor]:
    """{"log_probs"}, and "token_entropy" on request: [B, S] of every label, unmasked (1.3).

    No attention mask is used: rows are padded on the right and attention is causal. The caller
    sets gradient mode, train mode and device. Of a Hugging Face model the vocabulary projection
    runs over chunks of tokens, so that no [B, S, V] tensor exists; any other module is called for
    its `.logits`.
    """
    if not isinstance(base_model(model), PreTrainedModel):
        logits = model(input_ids).logits
        scores = {"log_probs": selective_log_softmax(logits, labels)}
        return scores | ({"token_entropy": compute_entropy(logits)} if return_token_entropy else {})
    if model not in _CHECKED:
        check_head(model)
        _CHECKED.add(model)
    hidden = base_model(model).base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    head = head_of(model)
    flat = token_logprobs(
        hidden.flatten(0, 1),
        labels.flatten(),
        head_weight=head.weight,
        head_bias=head.bias,
        logit_scale=head.scale,
        logit_softcap=head.softcap,
    )
    scores = {"log_probs": flat.logprobs.view(labels.shape)}
    if return_token_entropy:
        scores["token_entropy"] = flat.entropies.view(labels.shape)
    return scores


# ------------------------------------------------------------------------------------ reducing


def masked_normalize(
    tensor: Tensor, mask: Tensor, normalize_constant: float, dim: int | None = None
) -> Tensor:
    """Sum of the masked entries along `dim` (None: all), divided by a constant (1.4)."""
    return masked.masked_normalize(tensor, mask, normalize_constant, dim)


def masked_mean(tensor: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the masked entries along `dim` (None: all); NaN where there is none (1.5)."""
    return masked.masked_mean(tensor, mask, dim=dim)


def sft_microbatch_train_step(
    policy_log_probs: Tensor,
    response_mask: Tensor,
    gradient_accumulation_steps: int,
    normalize_constant: float = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(loss / accumulation, metadata), with its gradient added by `backward` (1.6).

    The loss is the mean over rows of -(sum over the row's masked tokens) / `normalize_constant`.
    Metadata: `loss` before scaling by the accumulation, `num_tokens`.
    """
    mask = response_mask.bool()
    num_tokens = mask.sum()
    totals = StepTotals(num_rows=mask.shape[0], num_tokens=int(num_tokens))
    loss = sft_loss(
        policy_log_probs, mask, totals, loss="seq_sum", normalize_constant=normalize_constant
    )
    return _backward(loss, gradient_accumulation_steps), {
        "loss": loss.detach(),
        "num_tokens": num_tokens,
    }


# --------------------------------------------------------------------------- policy gradients


def compute_group_normalized_rewards(
    reward_fn: RewardFunction,
    rollout_responses: Sequence[str],
    repeated_ground_truths: Sequence[str],
    group_size: int,
    advantage_eps: float,
    normalize_by_std: bool,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """(advantages, raw rewards, metadata); both float32 [n], groups are consecutive (1.9).

    r - mean, over (unbiased std + `advantage_eps`) with `normalize_by_std`; equal rewards give 0.
    Metadata: mean, std, min and max of the rewards, and the means of `format_reward` and
    `answer_reward` where `reward_fn` gives them. ValueError for numbers that do not fit, and for
    groups of one with `normalize_by_std`, where the formula is 0 / 0.
    """
    count = len(rollout_responses)
    if count != len(repeated_ground_truths):
        raise ValueError(f"{count} responses and {len(repeated_ground_truths)} ground truths")
    if group_size < 1 or not count or count % group_size:
        raise ValueError(
            f"{count} responses do not make whole groups of group_size={group_size}; give "
            "every prompt as many responses"
        )
    scores = [
        reward_fn(response, gold)
        for response, gold in zip(rollout_responses, repeated_ground_truths, strict=True)
    ]
    rewards = torch.tensor([float(score["reward"]) for score in scores], dtype=torch.float32)
    if group_size == 1 and not normalize_by_std:
        advantages = torch.zeros_like(rewards)  # a reward minus itself
    else:
        advantages = group_advantages(
            rewards.view(-1, group_size),
            estimator="group" if normalize_by_std else "group_mean",
            eps=advantage_eps,
        ).flatten()
    metadata = {
        "mean": rewards.mean().item(),
        "std": rewards.std().item() if count > 1 else 0.0,
        "min": rewards.min().item(),
        "max": rewards.max().item(),
    }
    for name in ("format_reward", "answer_reward"):
        if all(name in score for score in scores):
            metadata[name] = sum(float(score[name]) for score in scores) / count
    return advantages, rewards, metadata


def compute_naive_policy_gradient_loss(
    raw_rewards_or_advantages: Tensor, policy_log_probs: Tensor
) -> Tensor:
    """-A log pi per token: [B, 1] and [B, S] give [B, S] (1.10)."""
    return policy_gradient(policy_log_probs, raw_rewards_or_advantages)


def compute_grpo_clip_loss(
    advantages: Tensor, policy_log_probs: Tensor, old_log_probs: Tensor, cliprange: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """(-min(r A, clip(r, 1 - c, 1 + c) A) per token, metadata) (1.10).

    Metadata: `clipped` [B, S] bool, where the clipped branch is the smaller one.
    """
    bounds = {"epsilon": cliprange, "epsilon_high": cliprange}
    log_ratios = log_ratio(policy_log_probs, old_log_probs)
    loss = ppo_clip(log_ratios, advantages, **bounds)
    clipped = clipped_tokens(log_ratios, advantages, **bounds)
    return loss, {"clipped": clipped.low | clipped.high}


def compute_policy_gradient_loss(
    policy_log_probs: Tensor,
    loss_type: LossType,
    raw_rewards: Tensor | None = None,
    advantages: Tensor | None = None,
    old_log_probs: Tensor | None = None,
    cliprange: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(per-token loss [B, S], metadata) of the loss by that name (1.10).

    `no_baseline` takes `raw_rewards`, the others `advantages`; `grpo_clip` takes `old_log_probs`
    and `cliprange` too, `grpo_no_clip` (-r A) only the former. ValueError names what is missing.
    """
    if loss_type not in _NEEDS:
        raise ValueError(f"unknown loss_type {loss_type!r}; expected one of {', '.join(_NEEDS)}")
    given = {
        "raw_rewards": raw_rewards,
        "advantages": advantages,
        "old_log_probs": old_log_probs,
        "cliprange": cliprange,
    }
    missing = [name for name in _NEEDS[loss_type] if given[name] is None]
    if missing:
        raise ValueError(f"loss_type={loss_type!r} needs {' and '.join(missing)}, which is None")
    if loss_type == "no_baseline" and raw_rewards is not None:
        return compute_naive_policy_gradient_loss(raw_rewards, policy_log_probs), {}
    assert advantages is not None
    if loss_type == "reinforce_with_baseline":
        return compute_naive_policy_gradient_loss(advantages, policy_log_probs), {}
    assert old_log_probs is not None
    if loss_type == "grpo_no_clip":
        return ratio_surrogate(log_ratio(policy_log_probs, old_log_probs), advantages), {}
    assert cliprange is not None
    return compute_grpo_clip_loss(advantages, policy_log_probs, old_log_probs, cliprange)


def grpo_microbatch_train_step(
    policy_log_probs: Tensor,
    response_mask: Tensor,
    gradient_accumulation_steps: int,
    loss_type: LossType,
    raw_rewards: Tensor | None = None,
    advantages: Tensor | None = None,
    old_log_probs: Tensor | None = None,
    cliprange: float | None = None,
    *,
    length_norm: Literal["mean", "constant"] = "mean",
    normalize_constant: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(loss / accumulation, metadata), with its gradient added by `backward` (1.11).

    Per-token loss, reduced within a row, mean over rows. `length_norm="mean"` takes the mean over
    the row's masked tokens (NaN without one); "constant" their sum over `normalize_constant`, which
    it needs. Metadata: `loss` before scaling by the accumulation, `num_tokens`, and with
    `grpo_clip` the per-token `clipped` and its share of the masked tokens, `clip_fraction`.
    """
    mask = response_mask.bool()
    token_loss, metadata = compute_policy_gradient_loss(
        policy_log_probs, loss_type, raw_rewards, advantages, old_log_probs, cliprange
    )
    if length_norm == "mean":
        rows = masked_mean(token_loss, mask, dim=1)
    elif length_norm != "constant":
        raise ValueError(f"unknown length_norm {length_norm!r}; expected mean or constant")
    elif normalize_constant is None:
        raise ValueError("length_norm='constant' needs normalize_constant, which is None")
    else:
        rows = masked_normalize(token_loss, mask, normalize_constant, dim=1)
    loss = rows.mean()
    metadata = {**metadata, "loss": loss.detach(), "num_tokens": mask.sum()}
    if "clipped" in metadata:
        metadata["clip_fraction"] = masked_mean(metadata["clipped"].to(loss.dtype), mask)
    return _backward(loss, gradient_accumulation_steps), metadata


def _backward(loss: Tensor, gradient_accumulation_steps: int) -> Tensor:
    """The scaled loss, detached, after its backward pass."""
    if gradient_accumulation_steps < 1:
        raise ValueError(
            f"gradient_accumulation_steps={gradient_accumulation_steps}; expected at least 1"
        )
    scaled = loss / gradient_accumulation_steps
    scaled.backward()  # type: ignore[no-untyped-call]
    return scaled.detach()


# --------------------------------------------------------------------------------- preferences


def compute_per_instance_dpo_loss(
    lm: nn.Module,
    lm_ref: nn.Module,
    tokenizer: Any,
    beta: float,
    prompt: str,
    response_chosen: str,
    response_rejected: str,
    *,
    template: str = "alpaca",
) -> Tensor:
    """The DPO loss of one pair, a scalar on the device of `lm` (supplement; 2305.18290, eq. 7).

    -log sigmoid(beta ((lm - ref)(chosen) - (lm - ref)(rejected))) of the log-probabilities of whole
    sequences: template, prompt, response and EOS. The prompt's part cancels. No gradient reaches
    `lm_ref`, which may be on another device.
    """
    device = next(lm.parameters()).device
    filled = load_template(template)

    def log_ratio(response: str) -> Tensor:
        ids = encode_document(prompt, response, filled, tokenizer)
        with torch.no_grad():
            reference = _sequence_log_prob(lm_ref, ids)
        return _sequence_log_prob(lm, ids) - reference.to(device)

    chosen, rejected = log_ratio(response_chosen)[None], log_ratio(response_rejected)[None]
    return preference_loss(chosen, rejected, loss="sigmoid", beta=beta)[0]


def _sequence_log_prob(model: nn.Module, ids: Sequence[int]) -> Tensor:
    row = torch.tensor([list(ids)], device=next(model.parameters()).device)
    return get_response_log_probs(model, row[:, :-1], row[:, 1:])["log_probs"].sum()
