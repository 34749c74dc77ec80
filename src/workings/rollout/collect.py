"""Hop 2: prompts in, groups of ungraded rollouts out, and what the completions look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workings.errors import EngineError
from workings.rollout.engine import Engine, Request, SamplingParams
from workings.seeds import derive_seed
from workings.types import Prompt, Rollout, RolloutGroup, Sample


def collect_groups(
    engine: Engine,
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    *,
    num_samples: int,
    seed: int,
    expected_version: int | None = None,
    max_staleness: int = 0,
) -> list[RolloutGroup]:
    """A group of `num_samples` rollouts for each prompt, in the order of the prompts.

    The draws for a prompt depend on `seed` and its problem's id (and on how often the same id
    stood before it), not on its neighbours. Pass another seed at every step.

    Args:
        expected_version: version of the trainer's weights; None accepts any.
        max_staleness: how many versions a sample may lag behind it.

    Raises EngineError for a sample from other weights than allowed, a wrong number of samples, and
    token sequences of different lengths.
    """
    requests = [
        Request(prompt_ids=prompt.ids, num_samples=num_samples, seed=request_seed)
        for prompt, request_seed in zip(prompts, _request_seeds(prompts, seed), strict=True)
    ]
    groups = engine.generate(requests, sampling)
    if len(groups) != len(prompts):
        raise EngineError(f"the engine gave {len(groups)} groups for {len(prompts)} prompts")
    for prompt, samples in zip(prompts, groups, strict=True):
        _check(prompt, samples, num_samples, expected_version, max_staleness)
    return [
        RolloutGroup(prompt=prompt, rollouts=tuple(_rollout(sample) for sample in samples))
        for prompt, samples in zip(prompts, groups, strict=True)
    ]


def completion_metrics(
    groups: Sequence[RolloutGroup], *, weight_version: int | None = None
) -> dict[str, float]:
    """Lengths in tokens, shares of truncated and distinct completions, and the weights' lag.

    `unique_completion_fraction` counts distinct completions within each group, so that it falls
    when a group repeats itself. `weight_version_lag` is the largest distance of a rollout from
    `weight_version`, the trainer's; without it, from the newest rollout of the batch.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not rollouts:
        raise ValueError("completion_metrics needs at least one rollout")
    lengths = [len(rollout.ids) for rollout in rollouts]
    truncated = sum(rollout.finish_reason == "length" for rollout in rollouts)
    versions = [rollout.weight_version for rollout in rollouts]
    newest = max(versions) if weight_version is None else weight_version
    unique = sum(len({tuple(rollout.ids) for rollout in group.rollouts}) for group in groups)
    return {
        "completion_length/mean": sum(lengths) / len(lengths),
        "completion_length/min": float(min(lengths)),
        "completion_length/max": float(max(lengths)),
        "truncated_fraction": truncated / len(rollouts),
        "unique_completion_fraction": unique / len(rollouts),
        "weight_version_lag": float(newest - min(versions)),
    }


def _request_seeds(prompts: Sequence[Prompt], seed: int) -> list[int]:
    """A seed per prompt from the call's seed, the problem's id and its occurrence."""
    seen: Counter[str] = Counter()
    seeds = []
    for prompt in prompts:
        problem_id = prompt.problem.id
        seeds.append(derive_seed(seed, problem_id, seen[problem_id]))
        seen[problem_id] += 1
    return seeds


def _check(
    prompt: Prompt,
    samples: Sequence[Sample],
    num_samples: int,
    expected_version: int | None,
    max_staleness: int,
) -> None:
    where = f"problem {prompt.problem.id!r}"
    if len(samples) != num_samples:
        raise EngineError(f"the engine gave {len(samples)} samples for {where}, not {num_samples}")
    for sample in samples:
        lengths = (len(sample.ids), len(sample.sampling_logprobs), len(sample.kept_mass))
        if len(set(lengths)) != 1 or not sample.ids:
            raise EngineError(
                f"the engine gave {lengths[0]} ids, {lengths[1]} logprobs and {lengths[2]} kept "
                f"masses for a sample of {where}; expected the same number, at least 1"
            )
        if expected_version is None:
            continue
        lag = expected_version - sample.weight_version
        if lag > max_staleness or lag < 0:
            raise EngineError(
                f"a sample of {where} comes from weights of version {sample.weight_version}; the "
                f"trainer is at {expected_version} and max_staleness is {max_staleness}",
                hint="call engine.load_weights before sampling",
            )


def _rollout(sample: Sample) -> Rollout:
    length = len(sample.ids)
    return Rollout(
        ids=sample.ids,
        sampling_logprobs=sample.sampling_logprobs,
        kept_mass=sample.kept_mass,
        mask=[True] * length,
        off_policy=[False] * length,
        text=sample.text,
        finish_reason=sample.finish_reason,
        weight_version=sample.weight_version,
        source="policy",
    )
