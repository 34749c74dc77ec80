"""Parts over several engines: every part once, in any order, and kept before another fails."""

from __future__ import annotations

import pytest

from tiny import tiny_tokenizer
from workings.errors import EngineError
from workings.evaluation.sampling import asked_of, sample_parts
from workings.rollout.engine import Request, SamplingParams
from workings.rollout.scripted import ScriptedEngine
from workings.types import Problem, Prompt, RolloutGroup

SAMPLING = SamplingParams(temperature=0.0, max_tokens=20)
PROMPTS = [
    Prompt(problem=Problem(id=f"p/{n % 8}", question="?", answer="1"), ids=(5, n), text="?")
    for n in range(10)
]
PARTS = [range(4), range(4, 8), range(8, 10)]


def says_its_seed(request: Request, index: int) -> str:
    return f"{request.prompt_ids[1]} {request.seed % 1000} {index}"


def sampled(engines: list[ScriptedEngine]) -> dict[range, list[RolloutGroup]]:
    asked = asked_of(PROMPTS, SAMPLING, num_samples=2, seed=3)
    found: dict[range, list[RolloutGroup]] = {}
    seen: list[tuple[int, int]] = []
    sample_parts(
        engines,
        asked,
        SAMPLING,
        PARTS,
        keep=lambda part, groups: found.update({part: groups}),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [total for _, total in seen] == [10] * len(PARTS)
    assert seen[-1][0] == 10
    return found


def engine(**options: float) -> ScriptedEngine:
    return ScriptedEngine(tiny_tokenizer(), says_its_seed, **options)  # type: ignore[arg-type]


def texts(found: dict[range, list[RolloutGroup]]) -> list[list[str]]:
    return [[r.text for r in g.rollouts] for part in PARTS for g in found[part]]


def test_engines_share_the_parts_and_the_result_is_that_of_one() -> None:
    alone = texts(sampled([engine()]))
    together = texts(sampled([engine(delay_seconds=0.05), engine(delay_seconds=0.01)]))
    assert together == alone
    # A problem that stands twice is drawn anew, wherever parts are cut.
    assert len({tuple(row) for row in alone}) == 10


def test_what_was_sampled_before_an_engine_died_is_kept() -> None:
    asked = asked_of(PROMPTS, SAMPLING, num_samples=1, seed=3)
    kept: list[range] = []
    with pytest.raises(EngineError, match="died after 2 batches"):
        sample_parts(
            [engine(dead_after=2)],
            asked,
            SAMPLING,
            PARTS,
            keep=lambda part, groups: kept.append(part),
        )
    assert kept == PARTS[:2]
