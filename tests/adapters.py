"""The 16 adapters of the CS336 alignment assignment, connected to this library.

The course's tests import these names from `adapters` beside them, as `tests.adapters` or
`.adapters`; arguments and results are the course's. Every adapter is one call into the library, and
the docstring of what it calls says more. The two adapters that fill in the Alpaca template take
this library's `alpaca`, which is the published text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workings.grading.text.course_answers import parse_gsm8k_response, parse_mmlu_response
from workings.training import course, course_data


def run_tokenize_prompt_and_output(
    prompt_strs: list[str], output_strs: list[str], tokenizer: Any
) -> dict[str, Tensor]:
    """`input_ids`, `labels` and `response_mask`, each (batch, longest prompt + output - 1)."""
    return course.tokenize_prompt_and_output(prompt_strs, output_strs, tokenizer)


def run_compute_group_normalized_rewards(
    reward_fn: Callable[[str, str], Mapping[str, float]],
    rollout_responses: list[str],
    repeated_ground_truths: list[str],
    group_size: int,
    advantage_eps: float,
    normalize_by_std: bool,
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Advantages and raw rewards, each (responses,), and statistics of the rewards."""
    return course.compute_group_normalized_rewards(
        reward_fn,
        rollout_responses,
        repeated_ground_truths,
        group_size,
        advantage_eps,
        normalize_by_std,
    )


def run_compute_entropy(logits: Tensor) -> Tensor:
    """Entropy in nats over the last axis: (batch, sequence, vocabulary) to (batch, sequence)."""
    return course.compute_entropy(logits)


def run_get_response_log_probs(
    model: torch.nn.Module, input_ids: Tensor, labels: Tensor, return_token_entropy: bool
) -> dict[str, Tensor]:
    """`log_probs` (batch, sequence) of every label, and `token_entropy` only on request."""
    return course.get_response_log_probs(model, input_ids, labels, return_token_entropy)


def run_compute_naive_policy_gradient_loss(
    raw_rewards_or_advantages: Tensor, policy_log_probs: Tensor
) -> Tensor:
    """Per-token loss (batch, sequence) of rewards or advantages (batch, 1)."""
    return course.compute_naive_policy_gradient_loss(raw_rewards_or_advantages, policy_log_probs)


def run_compute_grpo_clip_loss(
    advantages: Tensor, policy_log_probs: Tensor, old_log_probs: Tensor, cliprange: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Per-token clipped loss (batch, sequence), and which tokens were clipped."""
    return course.compute_grpo_clip_loss(advantages, policy_log_probs, old_log_probs, cliprange)


def run_compute_policy_gradient_loss(
    policy_log_probs: Tensor,
    loss_type: str,
    raw_rewards: Tensor,
    advantages: Tensor,
    old_log_probs: Tensor,
    cliprange: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Per-token loss (batch, sequence) of the loss by that name, and its metadata."""
    return course.compute_policy_gradient_loss(
        policy_log_probs,
        loss_type,  # type: ignore[arg-type]
        raw_rewards,
        advantages,
        old_log_probs,
        cliprange,
    )


def run_masked_mean(tensor: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the masked entries along `dim`; NaN where there is none."""
    return course.masked_mean(tensor, mask, dim)


def run_sft_microbatch_train_step(
    policy_log_probs: Tensor,
    response_mask: Tensor,
    gradient_accumulation_steps: int,
    normalize_constant: float = 1.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The scaled loss after its backward pass, and metadata."""
    return course.sft_microbatch_train_step(
        policy_log_probs, response_mask, gradient_accumulation_steps, normalize_constant
    )


def run_grpo_microbatch_train_step(
    policy_log_probs: Tensor,
    response_mask: Tensor,
    gradient_accumulation_steps: int,
    loss_type: str,
    raw_rewards: Tensor | None = None,
    advantages: Tensor | None = None,
    old_log_probs: Tensor | None = None,
    cliprange: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The scaled loss after its backward pass, and metadata."""
    return course.grpo_microbatch_train_step(
        policy_log_probs,
        response_mask,
        gradient_accumulation_steps,
        loss_type,  # type: ignore[arg-type]
        raw_rewards,
        advantages,
        old_log_probs,
        cliprange,
    )


def run_masked_normalize(
    tensor: Tensor, mask: Tensor, dim: int | None = None, normalize_constant: float = 1.0
) -> Tensor:
    """Sum of the masked entries along `dim`, divided by the constant."""
    return course.masked_normalize(tensor, mask, normalize_constant, dim)


# -------------------------------------------------------------- optional part (safety, RLHF)


def get_packed_sft_dataset(
    tokenizer: Any, dataset_path: str | os.PathLike[str], seq_length: int, shuffle: bool
) -> Dataset[dict[str, Tensor]]:
    """Items {"input_ids", "labels"}, (seq_length,) each, of documents packed end to end."""
    return course_data.get_packed_sft_dataset(
        tokenizer, os.fspath(dataset_path), seq_length, shuffle
    )


def run_iterate_batches(dataset: Dataset[Any], batch_size: int, shuffle: bool) -> DataLoader[Any]:
    """One epoch of batches; the last one may be short."""
    return course_data.iterate_batches(dataset, batch_size, shuffle)


def run_parse_mmlu_response(mmlu_example: dict[str, Any], model_output: str) -> str | None:
    """The letter that the output answers with, None where it gives none."""
    return parse_mmlu_response(mmlu_example, model_output)


def run_parse_gsm8k_response(model_output: str) -> str | None:
    """The last number of the output as text, None without one."""
    return parse_gsm8k_response(model_output)


def run_compute_per_instance_dpo_loss(
    lm: torch.nn.Module,
    lm_ref: torch.nn.Module,
    tokenizer: Any,
    beta: float,
    prompt: str,
    response_chosen: str,
    response_rejected: str,
) -> Tensor:
    """The DPO loss of one preference pair, a scalar."""
    return course.compute_per_instance_dpo_loss(
        lm,
        lm_ref,
        tokenizer,
        beta,
        prompt,
        response_chosen,
        response_rejected,
    )
