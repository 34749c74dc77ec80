"""Groups made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from workings.types import FinishReason, Grade, Problem, Prompt, Rollout, RolloutGroup, Verdict


@pytest.fixture(scope="session")
def make_group() -> Callable[..., RolloutGroup]:
    """A function that builds one group: texts, rewards and what else a test wants to vary."""

    def build(
        *,
        texts: Sequence[str] = ("<answer>4</answer>", "<answer>5</answer>"),
        rewards: Sequence[float | None] = (1.0, 0.0),
        formats: Sequence[float] | None = None,
        verdicts: Sequence[Verdict | None] | None = None,
        finish_reasons: Sequence[FinishReason] | None = None,
        problem_id: str = "sums/1",
    ) -> RolloutGroup:
        prompt = Prompt(
            problem=Problem(id=problem_id, question="2 + 2?", answer="4", source="sums"),
            ids=(5, 6, 7),
            text="2 + 2? ",
        )
        rollouts = tuple(
            Rollout(
                ids=tuple(range(10, 13 + index)),
                sampling_logprobs=(-0.5,) * (3 + index),
                kept_mass=(1.0,) * (3 + index),
                mask=(True,) * (3 + index),
                off_policy=(False,) * (3 + index),
                text=text,
                finish_reason="eos" if finish_reasons is None else finish_reasons[index],
                weight_version=3,
                reward=rewards[index],
                components={}
                if formats is None
                else {"format": formats[index], "answer": float((rewards[index] or 0) > 0)},
                grade=None
                if verdicts is None or verdicts[index] is None
                else Grade(verdict=verdicts[index]),
            )
            for index, text in enumerate(texts)
        )
        return RolloutGroup(prompt=prompt, rollouts=rollouts)

    return build
