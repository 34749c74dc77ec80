"""DAPO-Math-17k: problems for RL, each once, with its answer in a column called `answer`.

Columns of the source (open-r1/DAPO-Math-17k-Processed, subset `en`): prompt, solution (the answer,
in spite of its name), data_source, source_prompt, ability, reward_model {ground_truth, style},
extra_info {index}. The raw set (BytedTsinghua-SIA/DAPO-Math-17k) has about a hundred copies of each
problem, and its prompts are message lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workings.data.conversations import question_of
from workings.data.golds import reduce_gold
from workings.data.preparation.questions import question_key
from workings.data.preparation.recipe import Made, Making, Recipe, usable
from workings.data.schemas import value_at
from workings.data.streaming import StreamedRow
from workings.errors import DataError

TRAIN = "train.jsonl"
GOLDS = ("answer", "solution", "reward_model.ground_truth")
CONFLICTING = "conflicting_answers"


@dataclass(slots=True)
class _Asked:
    """One problem, the rows that ask it, and whether they agree."""

    record: dict[str, object]
    rows: int = 1
    agrees: bool = True


def make_dapo_math(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """Each problem once, in the order of first occurrence; memory grows with distinct problems."""
    asked: dict[bytes, _Asked] = {}
    column: str | None = None
    for row, values in usable(rows, making, needs=("prompt",)):
        column = column or _gold_column(values)
        try:
            question, _ = question_of(values["prompt"])
        except DataError:
            making.tally.drop("no_prompt", row.place)
            continue
        try:
            answer = reduce_gold(value_at(values, column))
        except DataError:
            making.tally.drop("no_answer", row.place)
            continue
        if column != "answer":
            making.tally.changed[f"{column}_to_answer"] += 1
        key = question_key(question)
        if key in asked:
            before = asked[key]
            before.rows += 1
            before.agrees &= before.record["answer"] == answer
        elif making.is_clean(question, row, f"{row.index}"):
            asked[key] = _Asked(_record(row, values, column, question, answer))
    for one in asked.values():
        if one.agrees:
            making.tally.drop("duplicate", rows=one.rows - 1)
            yield Made(TRAIN, one.record)
        else:
            making.tally.drop(CONFLICTING, rows=one.rows)


def _gold_column(values: Mapping[str, object]) -> str:
    for column in GOLDS:
        if value_at(values, column) is not None:
            return column
    raise DataError(
        "the source must have an 'answer' field; "
        f"found: {', '.join(values)}; expected one of: {', '.join(GOLDS)}",
        hint="rename the column of the gold answer to 'answer'",
    )


def _record(
    row: StreamedRow, values: Mapping[str, object], column: str, question: str, answer: str
) -> dict[str, object]:
    taken = {"prompt", "answer", "source_prompt"} | ({column} if "." not in column else set())
    others = {name: value for name, value in values.items() if name not in taken}
    return {"id": f"{row.index}", "prompt": question, "answer": answer, **others}


DAPO_MATH = Recipe(
    name="dapo_math",
    about="DAPO-Math-17k: problems with answers for RL",
    source="open-r1/DAPO-Math-17k-Processed",
    patterns=("en/train-*.parquet",),
    split="train",
    folder="data/dapo_math",
    licence="Apache-2.0 for BytedTsinghua-SIA/DAPO-Math-17k (from memory, not verified here)",
    steps=(
        "the column `solution` holds the answer and becomes `answer`; where it is missing, "
        "reward_model.ground_truth does",
        "a problem that was asked before is left out: questions are compared without white space, "
        "case and LaTeX's delimiters and spacing",
        "a problem whose copies differ in the answer is left out with all its copies",
        "source_prompt, the same question in a wrapper of instructions, is left out; other columns "
        "are kept",
    ),
    question=lambda record: str(record["prompt"]),
    make=make_dapo_math,
)
