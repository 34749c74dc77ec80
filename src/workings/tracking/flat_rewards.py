"""When nothing is learnt because all rewards of every group are equal: the likely cause, said once.

A loss near zero is normal on-policy (the ratio is 1 and advantages sum to zero), so it tells
nothing. Flat groups do: their advantages are zero, and so is their gradient.
"""

from __future__ import annotations

from collections.abc import Callable

from workings.tracking.rollout_statistics import RolloutStatistics

NO_TAGS_REWARD = -6.5
"""What the four tag rewards sum to on a completion without any tag."""
MANY_TRUNCATED = 0.9
"""From this share of truncated completions on, the token limit explains flat rewards best."""


def likely_cause(statistics: RolloutStatistics) -> str:
    """The most likely reason for flat groups, with what to change, in one sentence.

    The checks go from what would explain everything else (no samples to compare, nothing but
    copies, nothing finished) to what the rewards themselves say.
    """
    for condition, text in _causes(statistics):
        if condition:
            return text
    return (
        "every group agrees with itself, some groups right and others wrong: the problems are "
        "either too easy or too hard for this model; mix in problems of middling difficulty, "
        "sample more per prompt, or raise the temperature"
    )


def _causes(statistics: RolloutStatistics) -> list[tuple[bool, str]]:
    lowest, highest = statistics.lowest_reward, statistics.highest_reward
    constant = lowest is not None and lowest == highest
    return [
        (
            statistics.num_samples == 0,
            "there are no sampled completions at all; look at the engine and at dropped prompts",
        ),
        (
            lowest is None,
            "no completion has a reward, because every gold answer is unusable; check the answer "
            "column (workings inspect data)",
        ),
        (
            not statistics.all_flat,
            f"{statistics.num_flat_groups} of {statistics.num_groups} groups are flat, the others "
            "teach; nothing is wrong",
        ),
        (
            statistics.num_samples <= statistics.num_groups,
            "there is one sample per prompt, so nothing to compare it with; set num_generations to "
            "2 or more, or objective.preset=no_baseline",
        ),
        (
            statistics.num_identical_groups == statistics.num_groups,
            "all completions of a prompt are identical: the temperature is too low, or the engine "
            "gives every sample the same seed; raise sampling.temperature",
        ),
        (
            statistics.truncated_rate >= MANY_TRUNCATED,
            f"{statistics.truncated_rate:.0%} of the completions stopped at the token limit before "
            "they could answer: raise sampling.max_tokens, or check that the model produces the "
            "stop strings or its end-of-text token",
        ),
        (
            constant and lowest == NO_TAGS_REWARD,
            f"every reward is {NO_TAGS_REWARD}, the score of a text without any tag: the tag "
            "format is not learnt yet. This is usual up to about step 20; if it stays, train SFT "
            "on the format first, and check the tags in the prompt (workings inspect data)",
        ),
        (
            statistics.correct_rate == 1,
            "every completion is right: the problems are too easy for this model; use harder ones",
        ),
        (
            statistics.correct_rate == 0 and statistics.format_rate == 0,
            "no completion has the format, so none can be right: teach it by SFT first, or use a "
            "template whose format the model knows (workings inspect data)",
        ),
        (
            statistics.correct_rate == 0,
            "no completion is right: the problems are too hard for this model, or the gold answers "
            "do not match what is extracted (workings inspect rollouts shows both); use easier "
            "problems, more samples per prompt, or SFT first",
        ),
        (
            constant,
            f"every reward is {lowest:g} whatever the answer: the reward function does not tell "
            "right from wrong"
            if lowest is not None
            else "",
        ),
    ]


class FlatRewardWarner:
    """Says once, after `patience` steps in a row with nothing but flat groups, what is wrong.

    A step with one useful group ends the stretch; a later stretch is warned about again.
    """

    def __init__(self, warn: Callable[[str], None], *, patience: int = 5) -> None:
        self._warn = warn
        self._patience = patience
        self._num_flat_steps = 0

    def update(self, step: int, statistics: RolloutStatistics) -> str | None:
        """The warning, where this step is the one that earns it; it goes to `warn` as well."""
        if not statistics.all_flat:
            self._num_flat_steps = 0
            return None
        self._num_flat_steps += 1
        if self._num_flat_steps != self._patience:
            return None
        text = (
            f"all {statistics.num_groups} groups were flat in the last {self._patience} steps (up "
            f"to step {step}): equal rewards give no gradient, so nothing is learnt (a policy loss "
            f"near 0 alone would be normal). Likely cause: {likely_cause(statistics)}."
        )
        self._warn(text)
        return text
