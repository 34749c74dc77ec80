"""What benchmarks/rollout.py measures: how many prompts and samples, how long, on which shape."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from shapes import SHAPES, Shape, random_prompts

SHORTEST, MEDIAN, SIGMA = 16, 512, 0.9
"""Of the mixed lengths: exp(N(log MEDIAN, SIGMA^2)), cut off at both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload.

    Attributes:
        output_tokens: sampled for every completion, whatever is sampled; with `mixed`, the most.
        mixed: lengths follow a log-normal distribution, one draw for each prompt.
        peer: the peer's settings, "tuned" or "defaults".
        also: name of a case with the same workload, whose figures of ours serve here too.
    """

    name: str
    shape: str
    prompts: int
    samples: int = 8
    input_tokens: int = 256
    output_tokens: int = 1024
    mixed: bool = False
    peer: str = "tuned"
    also: str | None = None

    @property
    def model(self) -> Shape:
        """The model that is sampled."""
        return SHAPES[self.shape]

    @property
    def sequences(self) -> int:
        """Completions of a repeat."""
        return self.prompts * self.samples

    @property
    def longest(self) -> int:
        """Most tokens of a prompt with its completion."""
        return self.input_tokens + self.output_tokens

    @property
    def title(self) -> str:
        """In words, for the results.

        >>> CASES["main"].title
        '1.5B, 128 x 8 samples, 256 in, 1,024 out'
        """
        out = f"{'up to ' if self.mixed else ''}{self.output_tokens:,} out"
        return (
            f"{self.shape}, {self.prompts} x {self.samples} samples, {self.input_tokens} in, {out}"
            + (", mixed lengths" if self.mixed else "")
            + (", peer at its defaults" if self.peer == "defaults" else "")
        )

    def lengths(self) -> list[int]:
        """Tokens to sample for the completions of each prompt; the same in every repeat."""
        if not self.mixed:
            return [self.output_tokens] * self.prompts
        draw = random.Random(self.prompts)
        drawn = (draw.gauss(math.log(MEDIAN), SIGMA) for _ in range(self.prompts))
        return [min(max(round(math.exp(one)), SHORTEST), self.output_tokens) for one in drawn]

    @property
    def tokens(self) -> int:
        """Tokens that a repeat samples."""
        return self.samples * sum(self.lengths())

    def prompt_ids(self, repeat: int) -> list[tuple[int, ...]]:
        """Prompts that no other repeat has, so that nothing is left in a prefix cache."""
        seed = 1000 * sum(map(ord, self.name)) + repeat
        return random_prompts(self.model, self.prompts, self.input_tokens, seed=seed)


CASES = {
    case.name: case
    for case in (
        Case(name="main", shape="1.5B", prompts=128),
        Case(name="seqs_256", shape="1.5B", prompts=32),
        Case(name="seqs_64", shape="1.5B", prompts=8),
        Case(name="mixed", shape="1.5B", prompts=128, output_tokens=4096, mixed=True),
        Case(name="long", shape="1.5B", prompts=8, output_tokens=4096),
        Case(name="0.5B", shape="0.5B", prompts=128),
        Case(name="3B", shape="3B", prompts=128),
        Case(name="135M", shape="135M", prompts=128),
        Case(name="defaults", shape="1.5B", prompts=128, peer="defaults", also="main"),
        Case(name="smoke", shape="tiny", prompts=4, samples=2, input_tokens=16, output_tokens=12),
        Case(
            name="smoke_mixed",
            shape="tiny",
            prompts=4,
            samples=2,
            input_tokens=16,
            output_tokens=40,
            mixed=True,
        ),
    )
}
PUBLISHED = tuple(name for name in CASES if not name.startswith("smoke"))


def chosen(names: list[str]) -> list[list[Case]]:
    """The cases in groups that share a model and the peer's settings, in the order named."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for name in names:
        case = CASES[name]
        groups.setdefault((case.shape, case.peer), []).append(case)
    return list(groups.values())
