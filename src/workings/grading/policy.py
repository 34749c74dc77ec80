"""How answers are taken from a response and how much one grade may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workings.errors import ConfigError, unknown_name

ExtractionPolicy = Literal["boxed", "tag", "lenient"]
Tier = Literal["string", "number", "structure", "expression", "peer"]

EXTRACTION_POLICIES: tuple[ExtractionPolicy, ...] = ("boxed", "tag", "lenient")
TIERS: tuple[Tier, ...] = ("string", "number", "structure", "expression", "peer")

GRADER_VERSION = 2
"""Part of every cache key: raise it whenever a change can alter a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingPolicy:
    """What counts as the answer, which tiers may decide, and the limits of one grade.

    Attributes:
        extraction: "boxed" (last box), "tag" (last `<answer>` block) or "lenient" (box, else tag,
            else a marked line; for evaluation only, never as a reward).
        tiers: the tiers that may decide, in their fixed order; a verdict that none reaches is
            "undecided".
        deadline_seconds: most wall-clock seconds of work on one pair, the second try included.
        max_answer_length: a longer answer or gold, in characters, is compared as text only.
        max_depth: deeper nested brackets are compared as text only.
    """

    extraction: ExtractionPolicy = "boxed"
    tiers: tuple[Tier, ...] = TIERS
    deadline_seconds: float = 2.0
    max_answer_length: int = 4096
    max_depth: int = 64

    def __post_init__(self) -> None:
        if self.extraction not in EXTRACTION_POLICIES:
            raise ConfigError(
                unknown_name("extraction policy", self.extraction, EXTRACTION_POLICIES)
            )
        for tier in self.tiers:
            if tier not in TIERS:
                raise ConfigError(unknown_name("grading tier", tier, TIERS))
        if not self.deadline_seconds > 0:
            raise ConfigError(f"deadline_seconds={self.deadline_seconds}; expected more than 0")
        if self.max_answer_length < 1 or self.max_depth < 1:
            raise ConfigError(
                f"max_answer_length={self.max_answer_length}, max_depth={self.max_depth}; "
                "expected 1 or more"
            )
