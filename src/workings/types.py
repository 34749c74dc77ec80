"""The records that pass between stages: frozen, slotted, keyword-only, plain sequences inside.

    Problem ── encoded ──> Prompt ── engine ──> Rollout × n = RolloutGroup ── graded ──> the same
    Demonstration, PreferencePair: rows that teach instead of being sampled

A stage never edits a record; it makes a new one with `dataclasses.replace`. No tensors live here
(`training.packing.MicroBatch` holds those), so that data, grading and the engine protocol stay
free of torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypedDict


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with a checkable answer.

    Attributes:
        id: unique within a data set, stable across runs, e.g. "math500/17".
        question: text of the (last) user turn.
        answer: the gold answer, already reduced to what is compared ("18", "\\frac{1}{2}").
        messages: the whole conversation when the data set gives one; it ends in `question`.
        subject, level: for breakdowns; None where the data set has none.
        source: name of the data set or of the generator.
        extra: every other column of the row, passed on to reward functions.
    """

    id: str
    question: str
    answer: str
    messages: tuple[Message, ...] = ()
    subject: str | None = None
    level: str | None = None
    source: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A question with a response to imitate (SFT row, teacher trace).

    `response` carries no EOS; encoding adds it once. `answer` is the gold where known.
    """

    id: str
    question: str
    response: str
    answer: str | None = None
    messages: tuple[Message, ...] = ()
    source: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """A question with a preferred and a rejected response (DPO row)."""

    id: str
    question: str
    chosen: str
    rejected: str
    messages: tuple[Message, ...] = ()
    source: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the model sees it: `ids` is what is sampled from, `text` the same rendered."""

    problem: Problem
    ids: tuple[int, ...]
    text: str


class Verdict(StrEnum):
    """What the grader found. Only `EQUAL` is correct; only `BAD_GOLD` masks the sample out."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NO_ANSWER = "no_answer"
    UNDECIDED = "undecided"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    BAD_GOLD = "bad_gold"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grader's record for one (response, gold) pair.

    Attributes:
        verdict: see `Verdict`.
        tier: the tier that decided ("string", "number", ..., "peer"), None where none did.
        reason: why, in one sentence for people, e.g. "the units differ: kg and g".
        extracted: the answer text taken from the response, before normalisation.
        milliseconds: from the start of work on this pair to the verdict.
    """

    verdict: Verdict
    tier: str | None = None
    reason: str | None = None
    extracted: str | None = None
    milliseconds: float = 0.0

    @property
    def correct(self) -> bool:
        """True only when agreement was proved."""
        return self.verdict is Verdict.EQUAL


FinishReason = Literal["eos", "stop", "length"]
RolloutSource = Literal["policy", "demonstration", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One completion as the engine returns it; all sequences have the length of `ids`.

    Attributes:
        ids: sampled token ids, the EOS token included when `finish_reason` is "eos".
        sampling_logprobs: natural log, float32 values, at the sampling temperature over the full
            vocabulary (greedy: temperature 1); NaN for a token that the engine did not sample.
        kept_mass: probability mass left by top-k, top-p and min-p at each token, 1.0 without them;
            the behaviour log-probability is `sampling_logprobs - log(kept_mass)`.
        text: the decoded ids without special tokens; a stop string stays in it.
        finish_reason: "eos", "stop" (a stop string) or "length" (truncated).
        weight_version: version of the weights that sampled it.
    """

    ids: Sequence[int]
    sampling_logprobs: Sequence[float]
    kept_mass: Sequence[float]
    text: str
    finish_reason: FinishReason
    weight_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A completion on its way through training; token sequences have the length of `ids`.

    Attributes:
        ids, sampling_logprobs, kept_mass, text, finish_reason: as in `Sample`.
        mask: True where the token is trained.
        off_policy: True where the token came from elsewhere (a demonstration, a teacher prefix,
            a replayed rollout).
        source: where the rollout as a whole came from; "policy" where no token is off-policy.
        weight_version: as in `Sample`; -1 where no weights of this run sampled it.
        recorded_logprobs: natural log of the probability of each off-policy token under whatever
            produced it (the teacher, or the policy of the step that it is replayed from); NaN at
            tokens without one; empty where nothing is recorded.
        reward: the weighted total; None before grading, and after it where the gold is unusable
            (such a row leaves the statistics and the loss).
        components: reward by component name, unweighted.
        grade: the grader's record where a grader was asked.
    """

    ids: Sequence[int]
    sampling_logprobs: Sequence[float]
    kept_mass: Sequence[float]
    mask: Sequence[bool]
    off_policy: Sequence[bool]
    text: str
    finish_reason: FinishReason
    weight_version: int
    source: RolloutSource = "policy"
    recorded_logprobs: Sequence[float] = ()
    reward: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    grade: Grade | None = None

    def __post_init__(self) -> None:
        lengths = {
            "sampling_logprobs": len(self.sampling_logprobs),
            "kept_mass": len(self.kept_mass),
            "mask": len(self.mask),
            "off_policy": len(self.off_policy),
        }
        if self.recorded_logprobs:
            lengths["recorded_logprobs"] = len(self.recorded_logprobs)
        wrong = {name: n for name, n in lengths.items() if n != len(self.ids)}
        if wrong:
            raise ValueError(f"rollout of {len(self.ids)} tokens has other lengths: {wrong}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """All rollouts of one prompt, in sampling order."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]

    @property
    def problem(self) -> Problem:
        """The problem that was sampled."""
        return self.prompt.problem
