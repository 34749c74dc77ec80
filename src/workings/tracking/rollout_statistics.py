"""What a batch of rollouts looks like in a few plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workings.types import Rollout, RolloutGroup

Judgement = Callable[[Rollout], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStatistics:
    """A batch of graded groups, summed up; rates are shares of all samples.

    Attributes:
        num_groups, num_samples: the sizes; demonstrations mixed into a group are left out.
        num_unusable: samples without a reward, because their gold answer is unusable.
        num_flat_groups: groups whose rewards are all equal (or of fewer than two rewards), which
            give no advantage and so no gradient.
        lowest_reward, highest_reward: over the whole batch; None where nothing has a reward.
        format_rate: share with the format right.
        correct_rate: share with the answer right.
        num_identical_groups: groups that say one and the same thing in every sample.
        distinct_rate: distinct completions of a group over its samples, mean over groups.
        truncated_rate: share that stopped at the token limit.
    """

    num_groups: int
    num_samples: int
    num_unusable: int
    num_flat_groups: int
    num_identical_groups: int
    lowest_reward: float | None
    highest_reward: float | None
    format_rate: float
    correct_rate: float
    distinct_rate: float
    truncated_rate: float

    @property
    def all_flat(self) -> bool:
        """True when no group can teach anything."""
        return self.num_groups > 0 and self.num_flat_groups == self.num_groups


def rollout_statistics(
    groups: Sequence[RolloutGroup], *, format_right: Judgement, answer_right: Judgement
) -> RolloutStatistics:
    """The statistics of graded groups. What was not sampled by the policy does not count.

    `format_right` and `answer_right` say what the rewards of a rollout mean; those of
    `rewards.four_classes` know all the rewards of this package.
    """
    sampled = [[one for one in group.rollouts if one.source == "policy"] for group in groups]
    sampled = [rollouts for rollouts in sampled if rollouts]
    every = [one for rollouts in sampled for one in rollouts]
    rewards = [one.reward for one in every if one.reward is not None]
    return RolloutStatistics(
        num_groups=len(sampled),
        num_samples=len(every),
        num_unusable=len(every) - len(rewards),
        num_flat_groups=sum(_is_flat(rollouts) for rollouts in sampled),
        num_identical_groups=sum(len({one.text for one in some}) == 1 for some in sampled),
        lowest_reward=min(rewards, default=None),
        highest_reward=max(rewards, default=None),
        format_rate=_mean([format_right(one) for one in every]),
        correct_rate=_mean([answer_right(one) for one in every]),
        distinct_rate=_mean([len({one.text for one in some}) / len(some) for some in sampled]),
        truncated_rate=_mean([one.finish_reason == "length" for one in every]),
    )


def _is_flat(rollouts: Sequence[Rollout]) -> bool:
    return len({one.reward for one in rollouts if one.reward is not None}) < 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
