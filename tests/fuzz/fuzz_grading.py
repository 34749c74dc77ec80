"""Fuzz the grader: whatever a model writes, no call raises, hangs, or takes more than its share.

    python tests/fuzz/fuzz_grading.py --minutes 30 --seed 7
    python tests/fuzz/fuzz_grading.py --replay 7:12345

Input number i of a seed is a function of (seed, i) alone. A child process works; its parent ends a
call that does not return, reports it, and goes on with the next input. The exit status is 1 where
anything was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from random import Random

import fuzz_inputs

from workings.grading.expression.compare import constant_ratio, same_value
from workings.grading.expression.parse import parse_expression
from workings.grading.expression.tree import Node, TooCostly, Unreadable, to_text
from workings.grading.gold import gold_fault, read, unboxed
from workings.grading.grader import Grader
from workings.grading.policy import EXTRACTION_POLICIES, GradingPolicy
from workings.grading.text.braces import is_balanced, max_depth, peel, split_list
from workings.grading.text.extraction import extract_answer, extract_boxes
from workings.grading.text.normalise import canonical, normalise, plain_text
from workings.grading.tiers import decide
from workings.types import Verdict

SLOW_SECONDS = 1.0
"""Of processor time, so that a busy machine is no fault."""
HANGING_SECONDS = 60.0
MEMORY_BYTES = 3 * 2**30
SHOWN_PER_PLACE = 4
NOTICED_SECONDS = 0.25
"""What the longest text may take whatever the growth: every text is capped in length."""
GROWTH = 10.0
"""Time for four times the text, over time for the text, above which work is not linear."""
LONGEST_ANSWER = GradingPolicy().max_answer_length
LONGEST_TEXT = 60_000

IN_PROCESS = GradingPolicy(tiers=("string", "number", "structure"))
WITH_EXPRESSIONS = GradingPolicy(tiers=("string", "number", "structure", "expression"))
LIMITS = {"max_length": IN_PROCESS.max_answer_length, "max_nesting": IN_PROCESS.max_depth}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A call that raised, broke a law, hung, or took too long, and how to see it again."""

    seed: int
    number: int
    call: str
    what: str
    place: str = ""

    def __str__(self) -> str:
        return f"--replay {self.seed}:{self.number}\n  {self.call}\n  {self.what}"


def _extraction(random: Random) -> Iterator[Callable[[], object]]:
    text = fuzz_inputs.response(random)
    for policy in EXTRACTION_POLICIES:
        yield partial(_extracts, text, policy)
    yield partial(extract_boxes, text)


def _extracts(text: str, policy: str) -> None:
    answer = extract_answer(text, policy)  # type: ignore[arg-type]
    assert answer is None or (answer and answer in text), f"{answer!r} is not in the text"
    boxed = extract_answer(f"{text} \\boxed{{7}}", "boxed")
    assert boxed in ("7", None), f"a last box of 7 gives {boxed!r}"


def _texts(random: Random) -> Iterator[Callable[[], object]]:
    text = fuzz_inputs.answer(random)
    for function in (
        peel,
        is_balanced,
        max_depth,
        split_list,
        unboxed,
        plain_text,
        canonical,
        read,
    ):
        yield partial(function, text)
    yield partial(_normalises, text)


def _normalises(text: str) -> None:
    once = normalise(text)
    assert normalise(text) == once, "normalise gives two results"
    assert canonical(f"{text} ") == canonical(text), "a space at the end changes the canonical form"


def _golds(random: Random) -> Iterator[Callable[[], object]]:
    yield partial(_equals_itself, fuzz_inputs.answer(random))


def _equals_itself(gold: str) -> None:
    if gold_fault(gold, **LIMITS) is None:
        decision = decide(unboxed(gold), unboxed(gold), IN_PROCESS)
        verdict = decision.verdict if decision else None
        assert verdict is Verdict.EQUAL, f"a good gold against itself is {verdict}"


def _decisions(random: Random) -> Iterator[Callable[[], object]]:
    gold = fuzz_inputs.answer(random)
    answer = (
        fuzz_inputs.mutated(gold, random) if random.random() < 0.5 else fuzz_inputs.answer(random)
    )
    if gold_fault(gold, **LIMITS) is None:
        yield partial(decide, answer, unboxed(gold), GradingPolicy())
        yield partial(decide, answer, unboxed(gold), WITH_EXPRESSIONS, in_worker=True)


def _grades(random: Random) -> Iterator[Callable[[], object]]:
    yield partial(_grades_quietly, fuzz_inputs.response(random), fuzz_inputs.answer(random))


def _grades_quietly(response: str, gold: str) -> None:
    for extraction in EXTRACTION_POLICIES:
        policy = GradingPolicy(extraction=extraction, tiers=IN_PROCESS.tiers)
        with Grader(policy, cache_size=0) as grader:
            first, second = grader.grade(response, gold), grader.grade(response, gold)
        assert first.verdict is second.verdict, f"{first.verdict}, then {second.verdict}"
        assert first.verdict is not Verdict.INTERNAL_ERROR, first.reason


def _expressions(random: Random) -> Iterator[Callable[[], object]]:
    well_formed = fuzz_inputs.expression(random, random.randint(1, 7))
    other = random.choice((fuzz_inputs.mutated(well_formed, random), fuzz_inputs.answer(random)))
    for compare in (same_value, constant_ratio):
        yield partial(_compares, compare, well_formed, other)
        yield partial(_compares, compare, other, well_formed)


def _compares(compare: Callable[[Node, Node], object], text: str, other: str) -> None:
    nodes: list[Node] = []
    for each in (text, other):
        try:
            nodes.append(parse_expression(normalise(each)))
        except Unreadable:
            continue
    for node in nodes:
        to_text(node)
    if len(nodes) == 2:
        with suppress(TooCostly):
            compare(*nodes)


def _growth(random: Random) -> Iterator[Callable[[], object]]:
    seed = random.getrandbits(32)
    name = random.choice(sorted(_GROWING))
    yield partial(_grows_linearly, name, seed)


def _grows_linearly(name: str, seed: int) -> None:
    function, longest = _GROWING[name]
    small, large = (fuzz_inputs.hard(Random(seed), longest // part) for part in (4, 1))
    if _seconds(function, large[:longest]) < NOTICED_SECONDS:
        return
    short, long = (min(_seconds(function, text) for _ in range(3)) for text in (small, large))
    is_linear = long < NOTICED_SECONDS or long < GROWTH * short
    assert is_linear, f"{name}: {short:.3f} s, 4 times the text {long:.3f} s"


def _seconds(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    function(text)
    seconds = time.process_time() - start
    assert seconds < SLOW_SECONDS, f"{len(text)} characters took {seconds:.2f} s"
    return seconds


_READING: tuple[Callable[[str], object], ...] = (
    peel, is_balanced, max_depth, split_list, unboxed, plain_text, canonical, read
)  # fmt: skip
_GROWING: dict[str, tuple[Callable[[str], object], int]] = {
    "extract boxed": (extract_answer, LONGEST_TEXT),
    "extract lenient": (partial(extract_answer, policy="lenient"), LONGEST_TEXT),
    "extract boxes": (extract_boxes, LONGEST_TEXT),
    "extract in a box": (lambda text: extract_answer(f"\\boxed{{{text}}}"), LONGEST_TEXT),
    "peel": (peel, LONGEST_TEXT),
    "balance": (is_balanced, LONGEST_TEXT),
    "normalise": (normalise, LONGEST_ANSWER),
    "canonical": (canonical, LONGEST_ANSWER),
    "split": (split_list, LONGEST_ANSWER),
    "plain": (plain_text, LONGEST_ANSWER),
    "read": (read, LONGEST_ANSWER),
    "read a number with": (lambda text: read(f"7 {text}"), LONGEST_ANSWER - 2),
    "gold fault": (lambda text: gold_fault(text, **LIMITS), LONGEST_ANSWER),
}
"""Functions of a text, with the longest text that each is given in use."""
_TARGETS = (
    _extraction,
    _texts,
    _golds,
    _decisions,
    _decisions,
    _grades,
    _expressions,
    _growth,
    _growth,
)


def calls(seed: int, number: int) -> Iterator[Callable[[], object]]:
    """The calls of input `number` of `seed`."""
    random = Random(f"{seed}:{number}")
    yield from random.choice(_TARGETS)(random)


def describe(call: Callable[[], object]) -> str:
    """A call as text, cut where long."""
    assert isinstance(call, partial)
    name = getattr(call.func, "__name__", repr(call.func))
    given = [ascii(argument) for argument in call.args]
    shown = [text if len(text) < 600 else f"{text[:400]}...{text[-100:]}" for text in given]
    return f"{name}({', '.join(shown)})"


def fault_of(seed: int, number: int) -> Fault | None:
    """What is wrong with input `number`, None where nothing is."""
    for call in calls(seed, number):
        start = time.process_time()
        try:
            call()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {where.filename}:{where.lineno}"
            what = f"{place}: {str(error)[:300]}"
            return Fault(seed=seed, number=number, call=describe(call), what=what, place=place)
        seconds = time.process_time() - start
        if seconds > SLOW_SECONDS and getattr(call, "func", None) is not _grows_linearly:
            what = f"took {seconds:.2f} s"
            return Fault(seed=seed, number=number, call=describe(call), what=what)
    return None


def fuzz(seed: int, *, seconds: float, first: int = 0) -> tuple[int, list[Fault]]:
    """Number of inputs tried in this process, and the faults among them."""
    end = time.monotonic() + seconds
    number, faults = first, []
    while time.monotonic() < end:
        fault = fault_of(seed, number)
        faults += [fault] if fault else []
        number += 1
    return number - first, faults


def _work(
    seed: int, first: int, end: float, progress: Synchronized[int], found: Connection
) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    number = first
    parent = os.getppid()
    while time.monotonic() < end and os.getppid() == parent:
        progress.value = number
        fault = fault_of(seed, number)
        if fault:
            found.send(fault)
        number += 1
    progress.value = number


def watch(seed: int, *, minutes: float) -> int:
    """Number of faults found in `minutes`, each written to stdout as it comes."""
    context = multiprocessing.get_context("spawn")
    end = time.monotonic() + 60 * minutes
    number = num_faults = 0
    told: Counter[str] = Counter()
    while time.monotonic() < end:
        progress: Synchronized[int] = context.Value("q", number)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(seed, number, end, progress, sender))
        child.start()
        sender.close()
        num_faults += _follow(child, seed, progress, receiver, told)
        number = progress.value + 1
    say(f"seed {seed}: {number} inputs in {minutes:g} minutes, {num_faults} faults")
    return num_faults


def _follow(
    child: multiprocessing.process.BaseProcess,
    seed: int,
    progress: Synchronized[int],
    found: Connection,
    told: Counter[str],
) -> int:
    """Faults of one child, until it ends or has to be ended."""
    num_faults, seen, since = 0, -1, time.monotonic()
    while child.is_alive() or found.poll():
        try:
            while found.poll(0.5):
                fault: Fault = found.recv()
                told[fault.place] += 1
                if not fault.place or told[fault.place] <= SHOWN_PER_PLACE:
                    say(str(fault))
                num_faults += 1
        except EOFError:
            break
        if progress.value != seen:
            seen, since = progress.value, time.monotonic()
        elif time.monotonic() - since > HANGING_SECONDS:
            child.kill()
            child.join()
            say(str(_lost(seed, progress.value, f"did not return within {HANGING_SECONDS:g} s")))
            return num_faults + 1
    child.join()
    if child.exitcode:
        say(str(_lost(seed, progress.value, f"the process ended with status {child.exitcode}")))
        num_faults += 1
    return num_faults


def _lost(seed: int, number: int, what: str) -> Fault:
    """The fault of an input whose process is gone: one of its calls is to blame."""
    text = "\n  ".join(map(describe, calls(seed, number)))
    return Fault(seed=seed, number=number, call=text, what=what)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzz the grader.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", metavar="SEED:NUMBER", help="one input, in this process")
    options = parser.parse_args(arguments)
    if options.replay:
        seed, number = map(int, options.replay.split(":"))
        say("\n".join(map(describe, calls(seed, number))))
        fault = fault_of(seed, number)
        say(fault.what if fault else "nothing wrong")
        return int(fault is not None)
    return int(watch(options.seed, minutes=options.minutes) > 0)


if __name__ == "__main__":
    sys.exit(main())
