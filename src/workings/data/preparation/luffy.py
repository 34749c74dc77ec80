"""Training files of LUFFY: problems with a teacher's trace, from OpenR1 or ready made, and forms.

Columns of open-r1/OpenR1-Math-220k (split `train`, 93,733 rows): problem, solution, answer,
problem_type, question_type, source, uuid, is_reasoning_complete, generations,
correctness_math_verify, correctness_llama, finish_reasons, correctness_count, messages; generations
and the two marks that are read are lists with an entry for each generation. The sets that LUFFY's
authors derived from it have their own schema (see `luffy_files`). Source: LUFFY (arXiv 2504.14945)
and its scripts prepare_train, prepare_sft and prepare_train_sft_rl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workings.data.conversations import as_messages, question_of, response_of
from workings.data.golds import reduce_gold
from workings.data.luffy_files import luffy_rows
from workings.data.preparation.questions import question_key
from workings.data.preparation.recipe import Made, Making, usable
from workings.data.preparation.thoughts import OPENING
from workings.data.schemas import value_at
from workings.data.streaming import StreamedRow
from workings.data.traces import PROBABILITIES
from workings.errors import DataError
from workings.types import Demonstration, Message, Problem

OPENR1, COMPLEMENT, SFT = "openr1.parquet", "openr1.complement.parquet", "train.jsonl"
GENERATIONS = ("generations", "correctness_math_verify", "is_reasoning_complete")
GOLD = "reward_model.ground_truth"
MORE_TRACES = ("target_lst", PROBABILITIES)


def make_openr1(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """Of every problem the first trace that was verified, is complete and short enough."""
    seen: set[bytes] = set()
    index = 0
    for row, values in usable(rows, making, needs=("problem", "answer", *GENERATIONS)):
        asked = _asked_by_openr1(row, values, making)
        if asked is None:
            continue
        question, answer = asked
        trace, reason = chosen_trace(question, values, making)
        if trace is None:
            making.tally.drop(reason, row.place)
        elif _is_new(question, seen, row, making):
            prompt = _prompt(question, making)
            yield Made(OPENR1, luffy_row(prompt, answer, trace, index))
            index += 1


def make_luffy(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """The rows of a set in LUFFY's schema, checked; a null target stays one."""
    yield from _luffy_rows(rows, making, OPENR1, with_traces=True)


def make_luffy_sft(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """{prompt, target} for SFT: rows without a trace left out, the opening of a thought removed.

    The chat template of LUFFY's model opens the thought itself. The tag goes as a prefix, and only
    where it stands.
    """
    for row, values in usable(rows, making, needs=("prompt", "target")):
        read = _read_luffy_row(row, values, making)
        if read is None:
            continue
        messages, answer, trace = read
        if trace is None:
            making.tally.drop("no_trace", row.place)
            continue
        response = trace.removeprefix(f"{OPENING}\n")
        if response != trace:
            making.tally.changed["thought_tag_removed"] += 1
        if making.is_clean(messages[-1]["content"], row, f"{row.index}"):
            target = [{"role": "assistant", "content": response}]
            prompt = [dict(turn) for turn in messages]
            yield Made(SFT, {"prompt": prompt, "target": target, "answer": answer})


def make_luffy_sft_rl(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    """Problems for RL after SFT, none of them among those that SFT was trained on.

    From LUFFY's own complement, or from OpenR1 with the training file excluded. Traces are left
    out: RL samples its own.
    """
    first = next(rows, None)
    if first is None:
        return
    rows = _with_first(first, rows)
    if first.values is not None and "problem" in first.values:
        yield from _openr1_problems(rows, making)
    else:
        yield from _luffy_rows(rows, making, COMPLEMENT, with_traces=False)


def chosen_trace(
    question: str, values: Mapping[str, object], making: Making
) -> tuple[str | None, str]:
    """The first trace that passes, or None and the reason: the last test that any trace reached."""
    lists = [values.get(name) for name in GENERATIONS]
    generations, verified, complete = (v if isinstance(v, Sequence) else () for v in lists)
    reason = "no_verified_trace"
    # A trace without its two marks is not verified, so `zip` may stop at the shortest list.
    for trace, is_right, is_complete in zip(generations, verified, complete, strict=False):
        if is_right is not True or not isinstance(trace, str) or not trace.strip():
            continue
        if is_complete is not True:
            reason = reason if reason == "over_length" else "no_complete_trace"
            continue
        if making.settings.max_length is not None:
            assert making.count_tokens is not None
            if making.count_tokens("", trace) > making.settings.max_length:
                reason = "over_length"
                continue
        return trace, ""
    return None, reason


def luffy_row(
    prompt: tuple[Message, ...], answer: str, trace: str | None, index: int
) -> dict[str, object]:
    """One row of the training file; see `luffy_files`."""
    question = prompt[-1]["content"]
    problem = Problem(id="", question=question, answer=answer, messages=prompt)
    traces = () if trace is None else (Demonstration(id="", question=question, response=trace),)
    (row,) = luffy_rows([problem], {"": traces})
    return row | {"extra_info": {"split": "train", "index": index}}


# ------------------------------------------------------------------------------------ reading rows


def _luffy_rows(
    rows: Iterator[StreamedRow], making: Making, file: str, *, with_traces: bool
) -> Iterator[Made]:
    seen: set[bytes] = set()
    index = 0
    needs = ("prompt", "reward_model", *(("target",) if with_traces else ()))
    for row, values in usable(rows, making, needs=needs):
        read = _read_luffy_row(row, values, making)
        if read is None or not _is_new(read[0][-1]["content"], seen, row, making):
            continue
        messages, answer, trace = read
        if trace is not None and not with_traces:
            making.tally.changed["trace_left_out"] += 1
            trace = None
        more = {name: values[name] for name in MORE_TRACES if with_traces and name in values}
        yield Made(file, luffy_row(messages, answer, trace, index) | more)
        index += 1


def _openr1_problems(rows: Iterator[StreamedRow], making: Making) -> Iterator[Made]:
    seen: set[bytes] = set()
    index = 0
    for row, values in usable(rows, making, needs=("problem", "answer")):
        asked = _asked_by_openr1(row, values, making)
        if asked is not None and _is_new(asked[0], seen, row, making):
            yield Made(COMPLEMENT, luffy_row(_prompt(asked[0], making), asked[1], None, index))
            index += 1


def _asked_by_openr1(
    row: StreamedRow, values: Mapping[str, object], making: Making
) -> tuple[str, str] | None:
    """Question and answer; None, and counted, where the row has none that could be graded."""
    try:
        question, _ = question_of(values.get("problem"))
    except DataError:
        making.tally.drop("no_problem", row.place)
        return None
    try:
        return question, reduce_gold(values.get("answer"))
    except DataError:
        making.tally.drop("no_gold", row.place)
        return None


def _read_luffy_row(
    row: StreamedRow, values: Mapping[str, object], making: Making
) -> tuple[tuple[Message, ...], str, str | None] | None:
    """Messages, gold and trace; None, and counted, where the row is no row of the schema."""
    try:
        messages = as_messages(values["prompt"])
        question_of(messages)
        trace = response_of(values.get("target"))
    except DataError as error:
        making.tally.drop("no_prompt_or_broken_target", f"{row.place}: {error.message}")
        return None
    try:
        return messages, reduce_gold(value_at(values, GOLD)), trace
    except DataError:
        making.tally.drop("no_gold", row.place)
        return None


def _is_new(question: str, seen: set[bytes], row: StreamedRow, making: Making) -> bool:
    key = question_key(question)
    if key in making.excluded:
        making.tally.drop("excluded", row.place)
    elif key in seen:
        making.tally.drop("duplicate", row.place)
    elif making.is_clean(question, row, f"{row.index}"):
        seen.add(key)
        return True
    return False


def _prompt(question: str, making: Making) -> tuple[Message, ...]:
    user = Message(role="user", content=question)
    if not making.system_text:
        return (user,)
    return (Message(role="system", content=making.system_text), user)


def _with_first(first: StreamedRow, rows: Iterator[StreamedRow]) -> Iterator[StreamedRow]:
    yield first
    yield from rows
