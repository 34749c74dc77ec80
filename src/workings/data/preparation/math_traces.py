"""Traces on MATH for SFT: a thought, then the answer in tags, as the course's format asks for.

Columns of the source (garg-aayush/sft-cs336-assign5-datasets, sft-reason/): problem,
reasoning_trace (thought, `</think> <answer>`, answer, `</answer>`), extracted_answer,
expected_answer. Its `.jsonl` files hold one JSON array. Sets with problem, answer and solution or
response are read as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workings.data.preparation.questions import question_key
from workings.data.preparation.recipe import Made, Making, Recipe, text_of, usable
from workings.data.preparation.thoughts import (
    ANSWER,
    ANSWER_END,
    CLOSING,
    NO_THOUGHT_END,
    Unfit,
    without_opening,
)
from workings.data.streaming import StreamedRow
from workings.errors import DataError

TRAIN = "train.jsonl"
TRACES = ("reasoning_trace", "response", "generated_solution", "solution")
GOLDS = ("expected_answer", "answer", "ground_truth")
KEPT = ("subject", "level", "source")


def make_math_traces(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """Whole traces in the course's format, in the order of the source, copies left out."""
    seen: set[tuple[bytes, str]] = set()
    columns: tuple[str, str] | None = None
    for row, values in usable(rows, making, needs=("problem",)):
        columns = columns or (_column(values, TRACES, "trace"), _column(values, GOLDS, "answer"))
        problem, trace = text_of(values, "problem"), values.get(columns[0])
        answer = text_of(values, columns[1])
        if problem is None or not isinstance(trace, str) or not trace.strip():
            making.tally.drop("no_problem" if problem is None else "no_trace", row.place)
            continue
        if answer is None:
            making.tally.drop("no_answer", row.place)
            continue
        try:
            response = whole_trace(trace)
        except Unfit as unfit:
            making.tally.drop(unfit.reason, row.place)
            continue
        key = (question_key(problem), " ".join(response.split()))
        if key in seen:
            making.tally.drop("duplicate", row.place)
        elif making.is_clean(problem, row, f"{row.index}"):
            seen.add(key)
            if response != trace:
                making.tally.changed["tags_or_ends_of_response"] += 1
            others = {name: values[name] for name in KEPT if name in values}
            yield Made(
                TRAIN,
                {
                    "id": f"{row.index}",
                    "problem": problem,
                    "response": response,
                    "answer": answer,
                    **others,
                },
            )


def whole_trace(trace: str) -> str:
    r"""The trace in the course's format: one space between the tags, nothing after the last.

    Raises `Unfit` where the thought or the answer never ends, or does not begin in its place.

    >>> whole_trace("<think>\nso it is\n</think>\n\n<answer>4</answer>\n")
    'so it is\n</think> <answer>4</answer>'
    """
    thought, closed, rest = without_opening(trace).partition(CLOSING)
    if not closed:
        raise Unfit(NO_THOUGHT_END)
    rest = rest.strip()
    if not rest.startswith(ANSWER) or not rest.endswith(ANSWER_END):
        raise Unfit("no_answer_tags")
    return f"{thought}{CLOSING} {rest}"


def _column(values: Mapping[str, object], names: tuple[str, ...], what: str) -> str:
    for name in names:
        if name in values:
            return name
    raise DataError(
        f"the source has no column of the {what}; found: {', '.join(values)}; expected one of: "
        f"{', '.join(names)}"
    )


MATH_SFT = Recipe(
    name="math_sft",
    about="MATH SFT traces: thoughts with an answer in tags, for the course's SFT",
    source="garg-aayush/sft-cs336-assign5-datasets",
    patterns=("sft-reason/sft_gpt-oss-120b.jsonl",),
    split="train",
    folder="data/math_sft",
    licence="not stated by this recipe; the problems are of Hendrycks MATH (MIT)",
    steps=(
        "a leading thought tag is left out, because the prompt of r1_zero ends with it; between "
        "thought and answer stands one space, after the answer nothing",
        "traces whose thought or answer never ends are left out",
        "a trace that occurred before for the same problem, but for white space, is left out",
        "traces with a wrong answer stay: `workings data filter-correct` leaves them out",
    ),
    question=lambda record: str(record["problem"]),
    make=make_math_traces,
)
