"""Teacher traces to token ids, once, before the first step: rows that never change afterwards.

A trace is a whole response of a teacher. It takes the place of a sampled rollout, so it is encoded
after the same prompt: a thought tag that the prompt already opened is not repeated, and EOS is
added once, as an id. A trace that was cut before its end gets no EOS, because the model would learn
to stop in the middle of a thought; such a trace is left out and counted, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from workings.data.encoding import encode_response
from workings.data.special_tokens import SpecialText, SpecialTokens, special_tokens
from workings.data.templates import PromptTemplate
from workings.data.tokenizer import Tokenizer
from workings.errors import DataError
from workings.types import Demonstration, Problem, Prompt

PROBABILITIES = "target_ds_qwen_7b_probs"
SMALLEST_PROBABILITY = 1e-20
OnCut = Literal["drop", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedTrace:
    """A teacher's trace as it stands in a group.

    Attributes:
        id: of the demonstration.
        ids: the response's token ids, EOS last.
        text: the ids decoded without special tokens, as an engine decodes a completion.
        logprobs: natural log of the teacher's recorded probability of each id; empty without.
    """

    id: str
    ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.logprobs and len(self.logprobs) != len(self.ids):
            raise DataError(
                f"{self.id}: {len(self.logprobs)} recorded probabilities for a trace of "
                f"{len(self.ids)} tokens, EOS included",
                hint="the probabilities belong to another tokenizer or another text; leave them "
                "out with use_teacher_probs=false",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedTraces:
    """The traces of a set of prompts, and what became of the others.

    Attributes:
        by_problem: problem id to its traces; problems without one are absent.
        dropped: reason ("too_long", "cut") to number of traces left out.
        longest: the longest trace kept, in tokens with EOS.
        num_with_special_text: traces that spell a control token.
        num_prompts: prompts that were looked at.
    """

    by_problem: Mapping[str, tuple[EncodedTrace, ...]]
    dropped: Mapping[str, int]
    longest: int
    num_with_special_text: int
    num_prompts: int

    @property
    def num_traces(self) -> int:
        """Traces kept."""
        return sum(map(len, self.by_problem.values()))

    def describe(self) -> str:
        """One line for the log."""
        text = (
            f"teacher traces: {self.num_traces} for {len(self.by_problem)} of {self.num_prompts} "
            f"prompts, the longest of {self.longest} tokens"
        )
        return text + "".join(
            f"; {count} left out ({reason.replace('_', ' ')})"
            for reason, count in sorted(self.dropped.items())
        )


def encode_traces(
    prompts: Sequence[Prompt],
    demonstrations: Mapping[str, Sequence[Demonstration]],
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    max_trace_length: int = 8192,
    on_cut: OnCut = "drop",
    recorded_probabilities: bool = False,
    special_text: SpecialText = "plain",
) -> EncodedTraces:
    """The traces of these prompts, encoded.

    Args:
        demonstrations: problem id to traces (`teacher_traces`, `traces_by_question`).
        max_trace_length: in tokens, EOS included.
        on_cut: what becomes of a trace that is longer, or that its source had cut: left out and
            counted, or a DataError.
        recorded_probabilities: read the teacher's probability of every token from the column
            `target_ds_qwen_7b_probs` of the trace, EOS included; a wrong number is a DataError,
            and so is a set of traces of which none has them. A probability that was rounded to 0
            counts as 1e-20.
    """
    special = special_tokens(tokenizer)
    traces: dict[str, tuple[EncodedTrace, ...]] = {}
    dropped: dict[str, int] = {}
    typed = 0
    for prompt in prompts:
        if prompt.problem.id in traces:
            continue
        kept: list[EncodedTrace] = []
        for row in demonstrations.get(prompt.problem.id, ()):
            trace = _encoded(row, prompt, template, tokenizer, special, special_text)
            reason = _cut(row, trace, template, max_trace_length)
            if reason is None:
                kept.append(_with_probabilities(trace, row) if recorded_probabilities else trace)
                typed += special.count_in(row.response) > 0
            elif on_cut == "error":
                raise DataError(
                    f"{row.id}: a trace of {len(trace.ids)} tokens is {reason.replace('_', ' ')} "
                    f"(max_trace_length={max_trace_length})",
                    hint="drop such traces (on_cut=drop), or raise max_trace_length",
                )
            else:
                dropped[reason] = dropped.get(reason, 0) + 1
        if kept:
            traces[prompt.problem.id] = tuple(kept)
    if recorded_probabilities and not any(t.logprobs for row in traces.values() for t in row):
        raise DataError(
            f"none of the traces has recorded probabilities in a column {PROBABILITIES!r}",
            hint="set use_teacher_probs=false, or add the column",
        )
    return EncodedTraces(
        by_problem=traces,
        dropped=dropped,
        longest=max((len(trace.ids) for row in traces.values() for trace in row), default=0),
        num_with_special_text=typed,
        num_prompts=len(prompts),
    )


class MatchedTraces(NamedTuple):
    """Problem id to demonstrations, and how many demonstrations fit no problem."""

    by_problem: dict[str, tuple[Demonstration, ...]]
    num_unmatched: int


def traces_by_question(
    problems: Sequence[Problem], demonstrations: Sequence[Demonstration]
) -> MatchedTraces:
    """Demonstrations of another data set as traces of the problems that ask the same question.

    Questions are compared as text, white space at both ends left out.
    """
    asked: dict[str, list[Demonstration]] = {}
    for row in demonstrations:
        asked.setdefault(row.question.strip(), []).append(row)
    questions = {problem.question.strip() for problem in problems}
    by_problem = {
        problem.id: tuple(asked[problem.question.strip()])
        for problem in problems
        if problem.question.strip() in asked
    }
    unmatched = sum(len(rows) for question, rows in asked.items() if question not in questions)
    return MatchedTraces(by_problem, unmatched)


def _encoded(
    row: Demonstration,
    prompt: Prompt,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    special_text: SpecialText,
) -> EncodedTrace:
    ids = encode_response(
        row, prompt.text, template, tokenizer, special=special, special_text=special_text
    )
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    return EncodedTrace(id=row.id, ids=ids, text=text)


def was_cut(row: Demonstration, *, thought_tag: str = "<think>") -> bool:
    """True where the response stops before its end, so that no EOS belongs behind it.

    That is so where the row says it (`finish_reason` "length", or `truncated`), and where the
    response opens a thought and never closes it.

    >>> was_cut(Demonstration(id="a", question="q", response="<think>\\nso far"))
    True
    """
    if row.extra.get("finish_reason") == "length" or row.extra.get("truncated") is True:
        return True
    opens = thought_tag.startswith("<") and row.response.lstrip().startswith(thought_tag)
    return opens and thought_tag.replace("<", "</", 1) not in row.response


def _cut(
    row: Demonstration, trace: EncodedTrace, template: PromptTemplate, max_trace_length: int
) -> str | None:
    """Why the trace has no end that could be learnt, or None."""
    if was_cut(row, thought_tag=template.thought_tag):
        return "cut"
    return "too_long" if len(trace.ids) > max_trace_length else None


def _with_probabilities(trace: EncodedTrace, row: Demonstration) -> EncodedTrace:
    values = row.extra.get(PROBABILITIES)
    if values is None:
        return trace
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise DataError(f"{row.id}: {PROBABILITIES} is no list of numbers: {str(values)[:60]}")
    logprobs: list[float] = []
    for place, value in enumerate(values):
        if not isinstance(value, int | float) or not 0.0 <= value <= 1.0 + 1e-6:
            raise DataError(
                f"{row.id}: {PROBABILITIES}[{place}] is {value!r}; expected a probability in "
                "[0, 1] (not its logarithm)"
            )
        logprobs.append(math.log(min(max(value, SMALLEST_PROBABILITY), 1.0)))
    return EncodedTrace(id=trace.id, ids=trace.ids, text=trace.text, logprobs=tuple(logprobs))
