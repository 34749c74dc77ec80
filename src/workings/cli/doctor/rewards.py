"""Whether the reward pays for the gold answer, and whether the prompt asks for what it pays for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workings.cli.doctor.findings import Finding, ok, warn
from workings.config.sections import RewardConfig
from workings.data.tags import Tags
from workings.rewards.four_classes import answer_right
from workings.rewards.reward import Reward, grade_groups
from workings.types import Problem, Prompt, Rollout, RolloutGroup

MOST_GOLDS = 200
WRONG_ANSWER = "none of these"


def reward_findings(
    config: RewardConfig,
    reward: Reward,
    prompts: Sequence[Prompt],
    *,
    stop: Sequence[str],
) -> Iterator[Finding]:
    """The gold answers under the reward, and the template beside it."""
    yield _golds(config, reward, [prompt.problem for prompt in prompts[:MOST_GOLDS]])
    yield _asked_for(config, prompts[0].text)
    if config.name == "r1_zero" and not any("</answer>" in text for text in stop):
        yield warn(
            "stop strings",
            "a response is not ended at </answer>, so a model that does not say EOS there runs on",
            'set sampling.stop=["</answer>"]',
        )


def perfect_response(reward: str, answer: str) -> str:
    """A response that is right in format, with this answer.

    >>> perfect_response("r1_zero", "7")
    'so </think> <answer>7</answer>'
    """
    if reward == "tags":
        tags = Tags()
        return f"so{tags.reasoning_end}{tags.solution_start}{answer}{tags.solution_end}"
    if reward == "question_only":
        return f"so \\boxed{{{answer}}}"
    if reward == "think_boxed":
        return f"so </think> \\boxed{{{answer}}}"
    return f"so </think> <answer>{answer}</answer>"


def _golds(config: RewardConfig, reward: Reward, problems: Sequence[Problem]) -> Finding:
    groups = grade_groups(
        [
            _probe(
                problem, [perfect_response(config.name, a) for a in (problem.answer, WRONG_ANSWER)]
            )
            for problem in problems
        ],
        reward,
    )
    missed = [group for group in groups if not answer_right(group.rollouts[0])]
    fooled = [group for group in groups if answer_right(group.rollouts[1])]
    count = f"{len(groups)} gold answers looked at"
    if missed or fooled:
        bad = (missed or fooled)[0].problem
        what = "is not paid for when given back" if missed else "is paid for any answer"
        return warn(
            "gold answers",
            f"{count}: {len(missed)} are not paid for when given back, {len(fooled)} for any "
            f"answer; {bad.id}, {bad.answer!r:.80}, {what}",
            "correct these rows; a model cannot earn their reward",
        )
    return ok("gold answers", f"{count}: given back they are paid, another answer is not")


def _asked_for(config: RewardConfig, prompt: str) -> Finding:
    """Whether the prompt shows the format; a template meant for SFT need not."""
    wanted = {
        "r1_zero": ("<think>", "<answer>"),
        "question_only": ("boxed",),
        "think_boxed": ("boxed",),
        "tags": (Tags().reasoning_start,),
    }[config.name]
    if any(text in prompt for text in wanted):
        return ok("template, reward", f"the prompt leads to the format of {config.name}")
    return warn(
        "template, reward",
        f"the reward {config.name} looks for a format that the prompt does not mention "
        f"({' or '.join(wanted)})",
        "take a template that asks for it, or a model that SFT has taught it",
    )


def _probe(problem: Problem, texts: Sequence[str]) -> RolloutGroup:
    """The problem with these texts as if they had been sampled."""
    return RolloutGroup(
        prompt=Prompt(problem=problem, ids=(0,), text=problem.question),
        rollouts=tuple(
            Rollout(
                ids=(0,),
                sampling_logprobs=(0.0,),
                kept_mass=(1.0,),
                mask=(True,),
                off_policy=(False,),
                text=text,
                finish_reason="eos",
                weight_version=0,
            )
            for text in texts
        ),
    )
