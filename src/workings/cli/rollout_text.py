"""Sampled completions in words: what a batch looks like, and each group with its rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean

from workings.cli.colour import paint
from workings.cli.terminal_text import for_terminal
from workings.data.tags import Tags
from workings.rewards.four_classes import answer_right, format_right
from workings.tracking.flat_rewards import likely_cause
from workings.tracking.lines import format_number
from workings.tracking.rollout_statistics import RolloutStatistics, rollout_statistics
from workings.types import Rollout, RolloutGroup

FIRST_LINES, LAST_LINES = 12, 6
"""How much of a long completion is shown."""
TAG_COURSE = (
    "usual course of the mean tag reward: -6.5 (no tags) up to about step 20, -3 to 0 up to step "
    "50, 0 to +5 up to step 100"
)

Advantages = Sequence[Sequence[float | None]]


def marks_of(reward: str) -> tuple[str, ...]:
    """The texts that a completion has to hold for its format to be right, by the reward's name."""
    if reward == "tags":
        tags = Tags()
        return (tags.reasoning_end, tags.solution_start, tags.solution_end)
    if reward == "question_only":
        return ("\\boxed{",)
    if reward == "think_boxed":
        return ("</think>", "\\boxed{")
    return ("</think>", "</think> <answer>", "</answer>")


def describe_batch(groups: Sequence[RolloutGroup], *, reward: str, more: Sequence[str] = ()) -> str:
    """Rewards by component, verdicts, lengths, diversity, tags, and why rewards are flat.

    `more` are lines to put before the last part.
    """
    statistics = rollout_statistics(groups, format_right=format_right, answer_right=answer_right)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = [len(rollout.ids) for rollout in rollouts]
    lines = [
        f"samples      {len(rollouts)} of {len(groups)} problems",
        f"rewards      {_rewards(rollouts, statistics)}",
        f"components   {_components(rollouts)}",
        f"answers      {_verdicts(rollouts)}",
        f"lengths      {fmean(lengths):.1f} tokens in the mean, {min(lengths)} to {max(lengths)}; "
        f"{statistics.truncated_rate:.0%} cut at the token limit",
        f"diversity    {statistics.distinct_rate:.0%} of a problem's completions are distinct; "
        f"{statistics.num_identical_groups} of {statistics.num_groups} groups say one thing only",
        f"tags         {_marks(rollouts, marks_of(reward))}",
    ]
    if reward == "tags":
        lines.append(f"             {TAG_COURSE}")
    lines += more
    if statistics.num_flat_groups:
        lines += ["", *_cause(statistics)]
    return "\n".join(lines)


def describe_group(
    group: RolloutGroup,
    *,
    number: int,
    reward: str,
    advantages: Sequence[float | None] = (),
) -> str:
    """One problem with its completions; equal ones are shown once."""
    lines = [
        "",
        paint(
            f"group {number}: {for_terminal(group.problem.id)}, gold answer "
            f"{group.problem.answer!r}",
            "bold",
        ),
        f"  prompt: {group.prompt.text!r}",
    ]
    numbered = sorted(enumerate(group.rollouts, start=1), key=lambda pair: (pair[1].text, pair[0]))
    same = [list(some) for _, some in groupby(numbered, key=lambda pair: pair[1].text)]
    for some in sorted(same, key=lambda some: some[0][0]):
        first, rollout = some[0]
        numbers = ", ".join(str(number) for number, _ in some)
        advantage = advantages[first - 1] if advantages else None
        heading = f"  {'samples' if len(some) > 1 else 'sample'} {numbers}: "
        heading += describe_rollout(rollout, advantage=advantage)
        lines.append(paint(heading, "green") if answer_right(rollout) else heading)
        lines += [f"  | {line}" for line in _shortened(rollout.text, marks_of(reward))]
    return "\n".join(lines)


def describe_rollout(rollout: Rollout, *, advantage: float | None = None) -> str:
    """Reward with its components, verdict, length and ending of one completion."""
    parts = [_reward(rollout)]
    if advantage is not None:
        parts.append(f"advantage {advantage:+.2f}")
    if rollout.grade is not None:
        read = f" (read {rollout.grade.extracted!r})" if rollout.grade.extracted else ""
        parts.append(f"{rollout.grade.verdict.value}{read}")
    parts.append(f"{len(rollout.ids)} tokens")
    parts.append("cut at the limit" if rollout.finish_reason == "length" else rollout.finish_reason)
    return ", ".join(parts)


def _reward(rollout: Rollout) -> str:
    if rollout.reward is None:
        return "no reward"
    listed = ", ".join(f"{name} {value:g}" for name, value in rollout.components.items())
    return f"reward {rollout.reward:g}" + (f" ({listed})" if listed else "")


def _rewards(rollouts: Sequence[Rollout], statistics: RolloutStatistics) -> str:
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    if not rewards:
        return "none; no gold answer could be used"
    text = (
        f"mean {format_number(fmean(rewards))}, lowest {min(rewards):g}, highest {max(rewards):g}; "
        f"{statistics.num_flat_groups} of {statistics.num_groups} groups flat"
    )
    return text + (f"; {statistics.num_unusable} without" if statistics.num_unusable else "")


def _components(rollouts: Sequence[Rollout]) -> str:
    values: dict[str, list[float]] = {}
    for rollout in rollouts:
        for name, value in rollout.components.items():
            values.setdefault(name, []).append(value)
    return (
        ", ".join(
            f"{name} mean {format_number(fmean(some))} ({min(some):g} to {max(some):g})"
            for name, some in values.items()
        )
        or "none"
    )


def _verdicts(rollouts: Sequence[Rollout]) -> str:
    verdicts = Counter(rollout.grade.verdict.value for rollout in rollouts if rollout.grade)
    return ", ".join(f"{name} {n}" for name, n in verdicts.most_common()) or "not graded"


def _marks(rollouts: Sequence[Rollout], marks: Sequence[str]) -> str:
    shares: Mapping[str, float] = {
        mark: fmean(mark in rollout.text for rollout in rollouts) for mark in marks
    }
    return ", ".join(f"{mark} in {share:.0%}" for mark, share in shares.items())


def _cause(statistics: RolloutStatistics) -> list[str]:
    if statistics.all_flat:
        return [
            "All rewards of every group are equal, so there is no advantage and nothing is learnt.",
            f"likely cause: {likely_cause(statistics)}.",
        ]
    return [f"flat groups: {likely_cause(statistics)}."]


def _shortened(text: str, marks: Sequence[str]) -> list[str]:
    """The lines of a completion, the middle of a long one left out, its tags in colour."""
    lines = for_terminal(text).split("\n")
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out > 1:
        note = f"... {left_out} lines ..."
        lines = [*lines[:FIRST_LINES], note, *lines[-LAST_LINES:]]
    for mark in sorted(marks, key=len):
        lines = [line.replace(mark, paint(mark, "blue")) for line in lines]
    return lines
