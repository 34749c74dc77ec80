"""What the tag pipeline reports of an evaluation: shares in per cent, a length, a reward.

The names of the pipeline stand behind `tags/`, because `format_accuracy` and `answer_accuracy` are
shares from 0 to 1 everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workings.data.tags import Tags
from workings.rewards.four_classes import answer_right
from workings.rewards.tag_text import formatted_solution
from workings.types import Rollout, RolloutGroup

FORMAT, ANSWER, REASONING = "tags/format_percent", "tags/answer_percent", "tags/reasoning_present"
LENGTH, REWARD, SAMPLES = "tags/avg_reasoning_length", "tags/avg_total_reward", "tags/num_samples"


def tag_metrics(groups: Sequence[RolloutGroup], tags: Tags | None = None) -> dict[str, float]:
    """The six metrics over all graded samples of `groups`; empty where there is none.

    format_percent: completions in the exact format, the start tag not required.
    answer_percent: those whose solution the maths grader calls equal to the gold.
    reasoning_present: in per cent, those with a text that is not blank before reasoning_end.
    avg_reasoning_length: its characters, over all samples; a missing one counts 0.
    avg_total_reward: the sum of the reward's functions.
    """
    tags = tags or Tags()
    graded = [
        rollout for group in groups for rollout in group.rollouts if rollout.reward is not None
    ]
    if not graded:
        return {}
    lengths = [len(reasoning(rollout, tags)) for rollout in graded]
    formatted = [formatted_solution(one.text, tags, None) is not None for one in graded]
    num = len(graded)
    return {
        FORMAT: 100 * sum(formatted) / num,
        ANSWER: 100 * sum(map(answer_right, graded)) / num,
        REASONING: 100 * sum(length > 0 for length in lengths) / num,
        LENGTH: sum(lengths) / num,
        REWARD: sum(rollout.reward or 0.0 for rollout in graded) / num,
        SAMPLES: float(num),
    }


def reasoning(rollout: Rollout, tags: Tags) -> str:
    """The text before the first reasoning_end, without the start tag and the space around it.

    Empty where the completion has no reasoning_end.
    """
    end = rollout.text.find(tags.reasoning_end)
    if end < 0:
        return ""
    return rollout.text[:end].strip().removeprefix(tags.reasoning_start).strip()


def describe_tag_metrics(metrics: Mapping[str, float]) -> str | None:
    """The six numbers in one line; None where they were not measured.

    >>> describe_tag_metrics({FORMAT: 85.0, ANSWER: 50.0, REASONING: 97.0, LENGTH: 312.4,
    ...                       REWARD: 4.0, SAMPLES: 500.0})[:57]
    'format 85.0 %, answer 50.0 %, reasoning present 97.0 % of'
    """
    if FORMAT not in metrics:
        return None
    return (
        f"format {metrics[FORMAT]:.1f} %, answer {metrics[ANSWER]:.1f} %, reasoning present "
        f"{metrics[REASONING]:.1f} % of {metrics[SAMPLES]:.0f} samples; reasoning of "
        f"{metrics[LENGTH]:.0f} characters on average, total reward {metrics[REWARD]:.2f}"
    )
