"""Hop 2: prompts in, groups of ungraded rollouts out, and what the completions look like."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workings.errors import EngineError
from workings.rollout.engine import Engine, Request, SamplingParams
from workings.rollout.prefixes import TracePrefix
from workings.seeds import derive_seed
from workings.types import Prompt, Rollout, RolloutGroup, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequests:
    """What an engine is asked for a batch of prompts, and whose rollouts its samples are.

    `owners` has for each request the place of its prompt and the beginning that it continues.
    """

    prompts: tuple[Prompt, ...]
    requests: tuple[Request, ...]
    owners: tuple[tuple[int, TracePrefix | None], ...]


def group_requests(
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    *,
    num_samples: int | Sequence[int],
    seed: int,
    prefixes: Sequence[Sequence[TracePrefix]] | None = None,
) -> GroupRequests:
    """The requests of a group of rollouts for each prompt; see `collect_groups`."""
    counts = [num_samples] * len(prompts) if isinstance(num_samples, int) else list(num_samples)
    begun = [()] * len(prompts) if prefixes is None else list(prefixes)
    requests: list[Request] = []
    owners: list[tuple[int, TracePrefix | None]] = []
    for number, (prompt, count, beginnings, request_seed) in enumerate(
        zip(prompts, counts, begun, _request_seeds(prompts, seed), strict=True)
    ):
        if count:
            requests.append(Request(prompt_ids=prompt.ids, num_samples=count, seed=request_seed))
            owners.append((number, None))
        for place, beginning in enumerate(beginnings):
            requests.append(
                Request(
                    prompt_ids=prompt.ids,
                    prefix_ids=beginning.ids,
                    seed=derive_seed(request_seed, "prefix", place),
                    max_tokens=sampling.max_tokens - len(beginning.ids),
                )
            )
            owners.append((number, beginning))
    return GroupRequests(prompts=tuple(prompts), requests=tuple(requests), owners=tuple(owners))


def groups_of(
    asked: GroupRequests,
    answers: Sequence[Sequence[Sample]],
    *,
    decode: Callable[[Sequence[int]], str] | None = None,
    expected_version: int | None = None,
    max_staleness: int = 0,
) -> list[RolloutGroup]:
    """The samples as groups of rollouts, checked; see `collect_groups`."""
    if decode is None and any(beginning is not None for _, beginning in asked.owners):
        raise EngineError("rollouts that begin with a prefix need decode, for their text")
    if len(answers) != len(asked.requests):
        raise EngineError(
            f"the engine gave {len(answers)} groups for {len(asked.requests)} prompts"
        )
    rollouts: list[list[Rollout]] = [[] for _ in asked.prompts]
    for (number, prefix), request, samples in zip(
        asked.owners, asked.requests, answers, strict=True
    ):
        prompt = asked.prompts[number]
        _check(prompt, samples, request.num_samples, expected_version, max_staleness)
        rollouts[number] += [_rollout(sample, prefix, decode) for sample in samples]
    return [
        RolloutGroup(prompt=prompt, rollouts=tuple(rows))
        for prompt, rows in zip(asked.prompts, rollouts, strict=True)
    ]


def collect_groups(
    engine: Engine,
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    *,
    num_samples: int | Sequence[int],
    seed: int,
    prefixes: Sequence[Sequence[TracePrefix]] | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    expected_version: int | None = None,
    max_staleness: int = 0,
) -> list[RolloutGroup]:
    """A group of rollouts for each prompt, in the order of the prompts.

    The draws for a prompt depend on `seed` and its problem's id (and on how often the same id
    stood before it), not on its neighbours. Pass another seed at every step.

    Args:
        num_samples: rollouts of every prompt, or one number for each.
        prefixes: for each prompt the beginnings that the engine continues, one rollout each, after
            the ordinary ones. Such a rollout is the beginning, marked off-policy, and the
            continuation; together they keep to `sampling.max_tokens`.
        decode: ids to text without special tokens; needed with `prefixes`.
        expected_version: version of the trainer's weights; None accepts any.
        max_staleness: how many versions a sample may lag behind it.

    Raises EngineError for a sample from other weights than allowed, a wrong number of samples, and
    token sequences of different lengths.
    """
    asked = group_requests(prompts, sampling, num_samples=num_samples, seed=seed, prefixes=prefixes)
    return groups_of(
        asked,
        engine.generate(asked.requests, sampling),
        decode=decode,
        expected_version=expected_version,
        max_staleness=max_staleness,
    )


def completion_metrics(
    groups: Sequence[RolloutGroup], *, weight_version: int | None = None
) -> dict[str, float]:
    """Lengths in tokens, shares of truncated and distinct completions, and the weights' lag.

    Of the policy's own completions: rows of a teacher or of a replay are not among them, and where
    all rows are such there is nothing to measure.
    `unique_completion_fraction` counts distinct completions within each group, so that it falls
    when a group repeats itself. `weight_version_lag` is the largest distance of a rollout from
    `weight_version`, the trainer's, and `weight_version_lag/mean` the mean over rollouts; without
    it, from the newest rollout of the batch.
    """
    if not any(group.rollouts for group in groups):
        raise ValueError("completion_metrics needs at least one rollout")
    sampled = [[r for r in group.rollouts if r.source == "policy"] for group in groups]
    rollouts = [rollout for rows in sampled for rollout in rows]
    if not rollouts:
        return {}
    lengths = [len(rollout.ids) for rollout in rollouts]
    truncated = sum(rollout.finish_reason == "length" for rollout in rollouts)
    versions = [rollout.weight_version for rollout in rollouts]
    newest = max(versions) if weight_version is None else weight_version
    unique = sum(len({tuple(rollout.ids) for rollout in rows}) for rows in sampled)
    return {
        "completion_length/mean": sum(lengths) / len(lengths),
        "completion_length/min": float(min(lengths)),
        "completion_length/max": float(max(lengths)),
        "truncated_fraction": truncated / len(rollouts),
        "unique_completion_fraction": unique / len(rollouts),
        "weight_version_lag": float(newest - min(versions)),
        "weight_version_lag/mean": newest - sum(versions) / len(versions),
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


def _rollout(
    sample: Sample, prefix: TracePrefix | None, decode: Callable[[Sequence[int]], str] | None
) -> Rollout:
    begun = () if prefix is None else prefix.ids
    num_begun, num_own = len(begun), len(sample.ids)
    ids = [*begun, *sample.ids]
    return Rollout(
        ids=ids,
        sampling_logprobs=[*[math.nan] * num_begun, *sample.sampling_logprobs],
        kept_mass=[*[1.0] * num_begun, *sample.kept_mass],
        mask=[True] * len(ids),
        off_policy=[*[True] * num_begun, *[False] * num_own],
        text=decode(ids) if prefix is not None and decode is not None else sample.text,
        finish_reason=sample.finish_reason,
        weight_version=sample.weight_version,
        source="policy" if prefix is None else "demonstration",
        recorded_logprobs=(
            (*prefix.logprobs, *[math.nan] * num_own) if prefix and prefix.logprobs else ()
        ),
    )
