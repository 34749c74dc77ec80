"""What benchmarks/grpo_step.py measures, and the reward that both sides pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shapes import SHAPES, Shape, random_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A GRPO step: one rollout batch, one optimizer step on all of it.

    Attributes:
        output_tokens: of every completion, whatever is sampled.
        rows: completions in one forward and backward pass of TRL when it is tuned.
        tuned: settings of our run, as one would choose them on a card of 80 GB.
        together: all sides fit on one card and take turns step by step; else one after another.
    """

    name: str
    shape: str
    prompts: int
    samples: int = 8
    input_tokens: int
    output_tokens: int
    rows: int
    together: bool
    tuned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Shape:
        """The model that is trained."""
        return SHAPES[self.shape]

    @property
    def completions(self) -> int:
        """Completions of a step."""
        return self.prompts * self.samples

    @property
    def tokens(self) -> int:
        """Tokens that a step samples."""
        return self.completions * self.output_tokens

    @property
    def longest(self) -> int:
        """Tokens of a prompt with its completion."""
        return self.input_tokens + self.output_tokens

    @property
    def title(self) -> str:
        """In words, for the results.

        >>> CASES["135M"].title
        '135M, 64 x 8 samples, 128 in, 120 out'
        """
        return (
            f"{self.shape}, {self.prompts} x {self.samples} samples, {self.input_tokens} in, "
            f"{self.output_tokens:,} out"
        )

    def prompt_ids(self, steps: int) -> list[tuple[int, ...]]:
        """Prompts for so many steps, no two alike."""
        return random_prompts(self.model, self.prompts * steps, self.input_tokens, seed=17)


CASES = {
    case.name: case
    for case in (
        Case(
            name="135M",
            shape="135M",
            prompts=64,
            input_tokens=128,
            output_tokens=120,
            rows=64,
            together=True,
            tuned={"batch.microbatch_tokens": 40960},
        ),
        Case(
            name="1.5B",
            shape="1.5B",
            prompts=128,
            input_tokens=256,
            output_tokens=1024,
            rows=8,
            together=False,
            tuned={"batch.microbatch_tokens": 2 * (256 + 8 * 1024)},
        ),
        Case(
            name="1.5B_quarter",
            shape="1.5B",
            prompts=32,
            input_tokens=256,
            output_tokens=1024,
            rows=8,
            together=False,
            tuned={"batch.microbatch_tokens": 2 * (256 + 8 * 1024)},
        ),
        Case(
            name="smoke",
            shape="tiny",
            prompts=2,
            samples=4,
            input_tokens=8,
            output_tokens=6,
            rows=4,
            together=True,
        ),
    )
}


def even_ids(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    """The share of even ids: a reward that costs nothing and that hardly two samples share."""
    return [sum(one % 2 == 0 for one in ids) / max(len(ids), 1) for ids in completion_ids]
