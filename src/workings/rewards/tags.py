"""The four tag rewards, in the call form of TRL: `f(prompts, completions, answer, **columns)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workings.data.tags import Tags
from workings.errors import ConfigError, DataError, unknown_name
from workings.rewards.components import Completion, RewardFunction, completion_text
from workings.rewards.tag_profiles import (
    EXACT_HIT,
    PROFILES,
    TAG_ONCE,
    TAG_OTHERWISE,
    Profile,
    ProfileName,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRewards:
    """The four functions for one set of tags, one profile of scores and one EOS token.

    Attributes:
        tags: the four literals.
        profile: "contract" (sum in -6.5..12.5), "unsloth" or "grpo-tests".
        eos_token: the tokenizer's own, which may follow the solution; None for none.
    """

    tags: Tags = field(default_factory=Tags)
    profile: ProfileName = "contract"
    eos_token: str | None = None

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(unknown_name("tag reward profile", self.profile, PROFILES))

    def match_format_exactly(
        self,
        prompts: Sequence[object],
        completions: Sequence[Completion],
        answer: Sequence[object] = (),
        **columns: object,
    ) -> list[float]:
        """+3 where the format is hit, else 0."""
        return [
            EXACT_HIT if self._scores.has_format(text, self.tags, self.eos_token) else 0.0
            for text in map(completion_text, completions)
        ]

    def match_format_approximately(
        self,
        prompts: Sequence[object],
        completions: Sequence[Completion],
        answer: Sequence[object] = (),
        **columns: object,
    ) -> list[float]:
        """+0.5 for each of the three tags that stands there once, -1 for each that does not."""
        tags = (self.tags.reasoning_end, self.tags.solution_start, self.tags.solution_end)
        return [
            sum(TAG_ONCE if text.count(tag) == 1 else TAG_OTHERWISE for tag in tags)
            for text in map(completion_text, completions)
        ]

    def check_answer(
        self,
        prompts: Sequence[object],
        completions: Sequence[Completion],
        answer: Sequence[object],
        **columns: object,
    ) -> list[float]:
        """The score of the solution: equal to the gold, near it, or neither."""
        scores = []
        for text, gold in _rows(completions, answer):
            solution = self.solution(text)
            scores.append(
                self._scores.no_answer
                if solution is None
                else self._scores.answer_score(solution, gold)
            )
        return scores

    def check_numbers(
        self,
        prompts: Sequence[object],
        completions: Sequence[Completion],
        answer: Sequence[object],
        **columns: object,
    ) -> list[float]:
        """The score of the first numeral behind the opening solution tag."""
        scores = []
        for text, gold in _rows(completions, answer):
            numeral = self._scores.numeral(text, self.tags, self.eos_token)
            scores.append(
                self._scores.no_numeral
                if numeral is None
                else self._scores.number_score(numeral, gold)
            )
        return scores

    def solution(self, text: str) -> str | None:
        """The answer as this profile extracts it; None where there is none."""
        return self._scores.solution(text, self.tags, self.eos_token)

    def functions(
        self,
        *,
        use_format_exact: bool = True,
        use_format_approximate: bool = True,
        use_answer_check: bool = True,
        use_number_check: bool = True,
    ) -> dict[str, RewardFunction]:
        """The enabled functions by name, in their fixed order; ConfigError where all are off."""
        chosen = {
            "match_format_exactly": (use_format_exact, self.match_format_exactly),
            "match_format_approximately": (use_format_approximate, self.match_format_approximately),
            "check_answer": (use_answer_check, self.check_answer),
            "check_numbers": (use_number_check, self.check_numbers),
        }
        enabled: dict[str, RewardFunction] = {
            name: function for name, (used, function) in chosen.items() if used
        }
        if not enabled:
            raise ConfigError("all four tag rewards are switched off; leave at least one on")
        return enabled

    @property
    def _scores(self) -> Profile:
        return PROFILES[self.profile]


def _rows(completions: Sequence[Completion], answer: Sequence[object]) -> list[tuple[str, str]]:
    if isinstance(answer, str) or len(answer) != len(completions):
        raise DataError(
            f"the answer column has {1 if isinstance(answer, str) else len(answer)} entries for "
            f"{len(completions)} completions; expected one each"
        )
    golds = ["" if gold is None else str(gold) for gold in answer]
    return list(zip(map(completion_text, completions), golds, strict=True))
