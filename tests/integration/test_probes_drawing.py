"""A12b: dynamic sampling keeps or drops whole groups."""

from __future__ import annotations

from typing import Any

import pytest

from tiny import tiny_tokenizer
from workings import (
    Component,
    Problem,
    Prompt,
    PromptSampler,
    Request,
    Reward,
    SamplingParams,
    ScriptedEngine,
    compose,
)
from workings.training.draw import draw_batch
from workings.training.metrics import Stopwatch
from workings.training.source import Source
from workings.training.state import TrainerState

TOKENIZER = tiny_tokenizer()
WORTH = {"no": 0.0, "nearly": 0.95, "yes": 1.0}
UNEVEN = [0.0] + [0.95] * 7


def answer_for(request: Request, index: int) -> str:
    """Problems with an even number get one bad answer and seven good ones, the others agree."""
    if request.prompt_ids[0] % 2 == 0:
        return "no" if index == 0 else "nearly"
    return "yes"


def worth(prompts: Any, completions: Any, answer: Any) -> list[float]:
    return [WORTH[text] for text in completions]


@pytest.mark.parametrize("prompts_per_step", [2, 3])
def test_a12b_a_group_with_one_bad_sample_is_kept_whole(prompts_per_step: int) -> None:
    config: Any = compose(
        ["quickstart"],
        [
            *("model.name_or_path=tiny", "objective.preset=dapo", "num_generations=8"),
            f"prompts_per_step={prompts_per_step}",
        ],
        kind="grpo",
    )
    objective = config.objective.resolve()
    assert objective.dynamic_sampling == "filter"
    prompts = [
        Prompt(problem=Problem(id=f"p/{n}", question="?", answer="1"), ids=(n,), text="?")
        for n in range(10, 18)
    ]
    source = Source(
        config=config,
        engine=ScriptedEngine(TOKENIZER, answer_for),
        sampler=PromptSampler(prompts, prompts_per_step=prompts_per_step, seed=0),
        sampling=SamplingParams(max_tokens=8),
        reward=Reward(
            settings={},
            components=(Component(name="worth", function=worth),),
            gold_fault=lambda gold: None,
        ),
    )
    drawn = draw_batch(source, objective, TrainerState(kind="grpo"), Stopwatch())
    assert len(drawn.groups) == prompts_per_step
    for group in drawn.groups:
        assert group.prompt.ids[0] % 2 == 0
        assert [rollout.reward for rollout in group.rollouts] == pytest.approx(UNEVEN)
    # Rows drawn and left out are counted, and the cursor stands behind all of them.
    batches = drawn.metrics["gen_batches"]
    assert drawn.cursor == batches * prompts_per_step
    dropped = drawn.metrics["filtered_groups"] + drawn.metrics["surplus_groups"]
    assert dropped == drawn.cursor - prompts_per_step
