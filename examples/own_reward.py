"""A reward function of your own, beside the grader's: in TRL's call form, with a weight.

python examples/own_reward.py
"""

from __future__ import annotations

from collections.abc import Sequence

from workings import (
    Component,
    Grader,
    Problem,
    Prompt,
    Rollout,
    RolloutGroup,
    build_reward,
    grade_groups,
)

TEXTS = (
    "3+4=7 </think> <answer>7</answer>",
    "Let me see, 3 and 4, that must be 7 </think> <answer>7</answer>",
    "3+4=8 </think> <answer>8</answer>",
)


def brevity(
    prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str], **columns: object
) -> list[float | None]:
    """-1 for a hundred characters; columns of the data set arrive by name."""
    return [-len(text) / 100 for text in completions]


def main() -> None:
    """Print reward and components of three answers to one problem."""
    problem = Problem(id="sum/1", question="3+4", answer="7")
    prompt = Prompt(problem=problem, ids=(1, 2, 3), text="3+4\n<think>")
    group = RolloutGroup(prompt=prompt, rollouts=tuple(map(answered, TEXTS)))
    with Grader() as grader:
        reward = build_reward(
            "r1_zero",
            grader=grader,
            extra_components=[Component(name="brevity", function=brevity, weight=0.5)],
        )
        (graded,) = grade_groups([group], reward)
    for rollout in graded.rollouts:
        print(f"{rollout.reward:+.3f}  {dict(rollout.components)}  {rollout.text!r}")


def answered(text: str) -> Rollout:
    """A rollout as an engine would return it; one id per character stands in for tokens."""
    length = len(text)
    return Rollout(
        ids=tuple(map(ord, text)),
        sampling_logprobs=(-1.0,) * length,
        kept_mass=(1.0,) * length,
        mask=(True,) * length,
        off_policy=(False,) * length,
        text=text,
        finish_reason="stop",
        weight_version=0,
    )


if __name__ == "__main__":
    main()
