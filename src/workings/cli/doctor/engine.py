"""A few tokens from the real model: do engine and trainer agree, and does a loss make sense?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from workings.cli.build import Policy
from workings.cli.data_faults import train_rows
from workings.cli.doctor.findings import Finding, fail, ok, warn
from workings.data.encoding import EncodedDemonstration
from workings.errors import WorkingsError
from workings.rollout.collect import collect_groups
from workings.rollout.engine import Engine, SamplingParams
from workings.training.compute_weights import compute_weights
from workings.training.forward import check_head, choose_layout, response_scores
from workings.training.packing import TrainRow, pack
from workings.types import Prompt, RolloutGroup

NUM_TOKENS, NUM_PROMPTS, NUM_SAMPLES = 16, 2, 2
FLOAT32_GAP, BFLOAT16_GAP = 1e-3, 5e-2
"""Largest mean difference of log-probabilities, in nats, that is no cause for alarm."""


def engine_findings(
    policy: Policy,
    engine: Engine,
    sampling: SamplingParams,
    prompts: Sequence[Prompt],
    *,
    seed: int,
) -> Iterator[Finding]:
    """Sampled ids and their log-probabilities against those that the trainer computes."""
    check_head(policy.model)
    short = replace(
        sampling,
        max_tokens=min(NUM_TOKENS, sampling.max_tokens),
        min_tokens=min(sampling.min_tokens, NUM_TOKENS, sampling.max_tokens),
    )
    groups = collect_groups(
        engine, prompts[:NUM_PROMPTS], short, num_samples=NUM_SAMPLES, seed=seed
    )
    yield _agreement(policy, groups, temperature=sampling.temperature or 1.0)
    if sampling.temperature > 0:
        yield _diversity(groups)


def loss_finding(policy: Policy, rows: Sequence[EncodedDemonstration]) -> Finding:
    """The loss on the first rows before training: finite, and better than guessing."""
    (logprobs, _), vocabulary = _scores(policy, train_rows(rows), 1.0), _vocabulary(policy)
    loss, guessing = -logprobs.mean().item(), math.log(vocabulary)
    text = f"{loss:.2f} nats per token on the first {len(rows)} rows"
    if not math.isfinite(loss):
        return fail("first loss", text, "the model's weights or dtype are at fault")
    if loss > guessing + 1:
        return warn(
            "first loss",
            f"{text}; guessing among {vocabulary:,} tokens gives {guessing:.2f}",
            "the template, the tokenizer or the weights may not belong together",
        )
    return ok("first loss", text)


def _agreement(policy: Policy, groups: Sequence[RolloutGroup], *, temperature: float) -> Finding:
    rows = [
        TrainRow(
            key=number,
            group=number,
            prompt_ids=group.prompt.ids,
            response_ids=rollout.ids,
            mask=rollout.mask,
            sampling_logprobs=rollout.sampling_logprobs,
            kept_mass=rollout.kept_mass,
        )
        for number, (group, rollout) in enumerate(
            (group, rollout) for group in groups for rollout in group.rollouts
        )
    ]
    ours, theirs = _scores(policy, rows, temperature)
    gaps = (ours - theirs).abs()
    bound = FLOAT32_GAP if policy.autocast is None else BFLOAT16_GAP
    text = (
        f"log-probabilities of {gaps.numel()} sampled tokens differ from the trainer's by "
        f"{gaps.mean().item():.1e} nats in the mean, {gaps.max().item():.1e} at most"
    )
    if not gaps.mean().item() <= bound:
        return warn(
            "engine, trainer",
            f"{text}; expected a mean of at most {bound:g}",
            "ratios will be off: compare with model.dtype=float32, or set "
            "objective.correction=tis_token",
        )
    return ok("engine, trainer", text)


def _diversity(groups: Sequence[RolloutGroup]) -> Finding:
    same = [group for group in groups if len({tuple(r.ids) for r in group.rollouts}) == 1]
    if len(same) == len(groups):
        return warn(
            "diversity",
            f"{NUM_SAMPLES} samples of one prompt are the same in their first {NUM_TOKENS} tokens",
            "raise sampling.temperature; a group of equal samples teaches nothing",
        )
    return ok("diversity", "samples of one prompt differ")


def _scores(
    policy: Policy, rows: Sequence[TrainRow], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The trainer's and the engine's log-probabilities of every trained token, float32."""
    policy.model.eval()
    ours, theirs = [], []
    layout = choose_layout(policy.model, "auto", grouped=False, autocast=policy.autocast)
    batches = pack(rows, layout=layout, max_tokens=2048, pad_id=policy.pad_id, device=policy.device)
    with torch.no_grad(), compute_weights(policy.model, policy.autocast):
        for batch in batches:
            scores = response_scores(
                policy.model, batch, temperature=temperature, autocast=policy.autocast
            )
            ours.append(scores.logprobs[batch.mask].float())
            theirs.append(batch.sampling_logprobs[batch.mask])
    if not ours:
        raise WorkingsError("no token to score: the rows have no response")
    return torch.cat(ours), torch.cat(theirs)


def _vocabulary(policy: Policy) -> int:
    return int(policy.model.get_input_embeddings().weight.shape[0])
