"""OpenMathReasoning: the 12,500 rows of the highest pass rate, whole or within a length; the mini.

Columns of the source (nvidia/OpenMathReasoning, split `cot`, 3.2 million rows): expected_answer,
problem_type, problem_source, generation_model, pass_rate_72b_tir (text, "n/a" where unknown),
problem, generated_solution, inference_mode, used_in_kaggle.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping

from workings.data.preparation.held_out import hold_out
from workings.data.preparation.questions import question_key
from workings.data.preparation.recipe import Made, Making, Recipe, Settings, text_of, usable
from workings.data.preparation.thoughts import CLOSING, NO_THOUGHT_END, Unfit, answer_in_tags
from workings.data.streaming import StreamedRow
from workings.errors import DataError

TRAIN, VALIDATION = "train.jsonl", "validation.jsonl"
RATE = "pass_rate_72b_tir"
NEEDED = ("problem", "generated_solution", "expected_answer", RATE)
KEPT = (RATE, "problem_type", "problem_source", "generation_model")
Ranked = tuple[float, int, dict[str, object]]


def make_omr12k(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """Training and validation rows: see `STEPS`.

    Rows are kept in a heap of the wanted size, so memory does not grow with the source, and a row
    is only formatted and measured while it could still be among the selected.
    """
    size = making.settings.size or 0
    best: list[Ranked] = []
    for row, values in usable(rows, making, needs=NEEDED):
        rate = pass_rate(values.get(RATE))
        if rate is None:
            making.tally.drop("no_pass_rate", row.place)
        elif len(best) == size and (rate, -row.index) < best[0][:2]:
            making.tally.drop("not_selected")
        elif (record := _record(row, values, making)) is not None:
            entry = (rate, -row.index, record)
            if len(best) < size:
                heapq.heappush(best, entry)
            else:
                heapq.heapreplace(best, entry)
                making.tally.drop("not_selected")
    yield from _divided(best, making)


def make_mini(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """The rows of the format-teaching set that have all three columns and a finished thought."""
    for row, values in usable(rows, making, needs=NEEDED[:3]):
        texts = {name: text_of(values, name) for name in NEEDED[:3]}
        empty = [name for name, text in texts.items() if text is None]
        problem, solution = texts["problem"], texts["generated_solution"]
        if empty or problem is None or solution is None:
            making.tally.drop(f"no_{empty[0]}", row.place)
        elif CLOSING not in solution:
            making.tally.drop(NO_THOUGHT_END, row.place)
        elif making.settings.numeric_answers and not is_number(texts["expected_answer"] or ""):
            making.tally.drop("answer_is_no_number", row.place)
        elif making.is_clean(problem, row, f"{row.index}"):
            yield Made(TRAIN, {"id": f"{row.index}", **texts})


def pass_rate(value: object) -> float | None:
    """The pass rate, 0 to 1; None for "n/a" and anything else that is none.

    >>> pass_rate("0.96875"), pass_rate("n/a"), pass_rate(None), pass_rate("nan")
    (0.96875, None, None, None)
    """
    try:
        rate = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return rate if 0.0 <= rate <= 1.0 else None


def is_number(answer: str) -> bool:
    """True for an answer that is a decimal number as it stands.

    >>> [is_number(text) for text in ("12", " -3.5e2", "1,234", "1/2", "nan", "1_000")]
    [True, True, False, False, False, False]
    """
    try:
        return not math.isnan(float(answer)) and "_" not in answer
    except ValueError:
        return False


def _record(
    row: StreamedRow, values: Mapping[str, object], making: Making
) -> dict[str, object] | None:
    problem, solution = text_of(values, "problem"), text_of(values, "generated_solution")
    if problem is None or solution is None:
        making.tally.drop("no_problem" if problem is None else "no_solution", row.place)
        return None
    try:
        response = answer_in_tags(solution)
    except Unfit as unfit:
        making.tally.drop(unfit.reason, row.place)
        return None
    longest = making.settings.max_length
    if longest is not None:
        assert making.count_tokens is not None
        if making.count_tokens(problem, response) > longest:
            making.tally.drop("over_length", row.place)
            return None
    if not making.is_clean(problem, row, f"{row.index}"):
        return None
    return {
        "id": f"{row.index}",
        "problem": problem,
        "response": response,
        "answer": text_of(values, "expected_answer"),
        **{name: values[name] for name in KEPT if name in values},
    }


def _divided(best: list[Ranked], making: Making) -> Iterator[Made]:
    """The selected rows, best first and those of one rate in the order of the source."""
    if not best:
        raise DataError(f"no row is left ({making.tally.describe()})")
    records = [record for _, _, record in sorted(best, key=lambda entry: entry[:2], reverse=True)]
    held_out = hold_out(
        [question_key(str(record["problem"])) for record in records],
        making.settings.held_out or 0,
        seed=making.settings.seed or 0,
    )
    for number, record in enumerate(records):
        yield Made(VALIDATION if number in held_out else TRAIN, record)


# ------------------------------------------------------------------------------------- the recipes

LICENCE = "CC BY 4.0 (the source's page)"
SELECT = (
    "rows without a pass rate are left out",
    "rows whose thought never ends, or has nothing after it, are left out",
)
RANK = (
    "rows are sorted by pass rate, highest first, those of one rate in the order of the source; "
    "the first {size} are taken",
    "of these, {held_out} rows are held out in validation.jsonl (seed {seed}); rows that share a "
    "problem are on one side",
)
FORM = (
    "the response is the thought, then the text after it in answer tags; a leading thought tag is "
    "left out, because the prompt of r1_zero ends with it"
)
FIT = (
    "rows of more than {max_length} tokens are left out before the selection: r1_zero prompt, "
    "response and EOS, counted by the tokenizer {tokenizer}"
)
TOKENIZER = "Qwen/Qwen2.5-Math-1.5B"


def _question(record: Mapping[str, object]) -> str:
    return str(record["problem"])


def _omr12k(suffix: str, max_length: int | None) -> Recipe:
    within = "" if max_length is None else f" of at most {max_length:,} tokens"
    return Recipe(
        name=f"omr12k{suffix}",
        about=f"OpenMathReasoning: 12,500 rows{within} with the highest pass rate",
        source="nvidia/OpenMathReasoning",
        patterns=("data/cot-*.parquet", "cot-*.parquet"),
        split="cot",
        folder=f"data/OMR12k{suffix}",
        licence=LICENCE,
        columns=(*NEEDED, *KEPT),
        settings=Settings(
            size=12_500,
            held_out=500,
            seed=42,
            max_length=max_length,
            tokenizer=None if max_length is None else TOKENIZER,
        ),
        steps=(*SELECT, *(() if max_length is None else (FIT,)), FORM, *RANK),
        question=_question,
        make=make_omr12k,
    )


OMR12K = tuple(_omr12k(*form) for form in (("", None), ("-2048", 2048), ("-4096", 4096)))
MINI = Recipe(
    name="openmathreasoning_mini",
    about="OpenMathReasoning-mini: worked problems that teach the format",
    source="unsloth/OpenMathReasoning-mini",
    patterns=("data/cot-*.parquet", "cot-*.parquet"),
    split="cot",
    folder="data/openmathreasoning_mini",
    licence="not stated by this recipe; the rows are of OpenMathReasoning (CC BY 4.0)",
    columns=NEEDED[:3],
    optional=("numeric_answers",),
    steps=(
        "rows without expected_answer, problem or generated_solution, and rows whose thought never "
        "ends, are left out; with --numeric-answers also rows whose answer is no number",
        "columns keep their names and texts; the template `tags` puts solutions into tags",
    ),
    question=_question,
    make=make_mini,
)
