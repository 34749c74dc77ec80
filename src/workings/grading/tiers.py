"""The tiers in their order: the same text, the same number, the same structure, the same value.

string, number and structure decide in the caller's process. What is still open then goes to a
worker, which asks the same questions once more with `formulas` at hand, and math-verify at last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workings.grading.gold import Reading, read_gold
from workings.grading.policy import GradingPolicy, Tier
from workings.grading.reading.answers import Answer, Expression, Named, Relation
from workings.grading.reading.number import Number
from workings.grading.reading.read import read_answer, read_with_unit
from workings.grading.rules.compare import Comparison
from workings.grading.rules.outcome import Formulas, Outcome
from workings.grading.rules.trust import may_ask_peer
from workings.grading.text.braces import max_depth
from workings.grading.text.normalise import compact, normalise
from workings.types import Verdict

_TERM = (
    r"(?:[0-9a-zA-Z{}^_+*/()\s-]|\\sqrt\s*\[\d+\]"
    r"|\\(?:sqrt|pi|frac|cdot|sin|cos|tan|ln|log|alpha|beta|theta|lambda|omega)(?![a-zA-Z]))+"
)
_FORMULA = re.compile(rf"(?=[^a-z\\]*(?:[a-z]|\\(?:sqrt|pi|frac))){_TERM}")
"""Nothing but letters, numbers, roots and ordinary functions: no list, relation, unit or word."""
_EQUATION = re.compile(rf"{_TERM}={_TERM}")


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, the tier that reached it, and why."""

    verdict: Verdict
    tier: Tier | None = None
    reason: str = ""


def decide(
    answer: str, gold: str, policy: GradingPolicy, *, in_worker: bool = False
) -> Decision | None:
    """The verdict on an extracted answer; None where only a worker can tell.

    `gold` has been checked (`gold_fault`); `answer` is whatever a model wrote. A worker always
    reaches a verdict.
    """
    strings = "string" in policy.tiers
    if len(answer) > policy.max_answer_length:
        if strings and answer.strip() == gold.strip():
            return Decision(Verdict.EQUAL, "string", "the same text")
        reason = f"{len(answer)} characters; at most {policy.max_answer_length} are read"
        return Decision(Verdict.REFUSED, None, reason)
    text = normalise(answer)
    form = compact(text)
    right = read_gold(gold)
    if not form:
        return Decision(Verdict.NO_ANSWER, None, "the answer is empty")
    if strings and form == right.form:
        return Decision(Verdict.EQUAL, "string", "the same text")
    if max_depth(answer) > policy.max_depth:
        return Decision(Verdict.REFUSED, None, f"nested deeper than {policy.max_depth}")
    if not in_worker and "expression" in policy.tiers and _is_formula_beside(text, right.answer):
        return None
    left = Reading(text=text, form=form, answer=read_answer(text))
    if in_worker:
        return _decide_in_worker(left, right, policy)
    outcome = compared(left.answer, right.answer, policy)
    tiers_left = {"expression", "peer"} if outcome.is_open else {"peer"}
    if outcome.same is None and tiers_left & set(policy.tiers):
        return None
    return _decision(outcome)


def compared(
    answer: Answer, gold: Answer, policy: GradingPolicy, formulas: Formulas | None = None
) -> Outcome:
    """What the tiers up to the expression tier find; `same` is None where that tier is off."""
    compare = Comparison(formulas, policy.tiers)
    outcome = compare(answer, gold)
    if outcome.same is not True:
        guess = _with_units(answer, gold)
        if guess is not None:
            outcome = compare(*guess)
    if outcome.same is not None and outcome.tier not in policy.tiers:
        return Outcome(None, outcome.tier, f"the tier {outcome.tier} is off")
    return outcome


def _is_formula_beside(text: str, gold: Answer) -> bool:
    """True where both sides are plainly formulas, or equations: only a worker can tell.

    It reads both once more, so to read the answer here would be for nothing.
    """
    if type(gold) is Named:
        gold, (_, _, text) = gold.answer, text.partition("=")
    if type(gold) is Relation and gold.operators == ("=",):
        return bool(_EQUATION.fullmatch(text))
    return type(gold) is Expression and gold.unit is None and bool(_FORMULA.fullmatch(text))


def _decide_in_worker(answer: Reading, gold: Reading, policy: GradingPolicy) -> Decision:
    from workings.grading.expression.tree import TooCostly
    from workings.grading.rules.formulas import EvaluatedFormulas

    try:
        outcome = compared(answer.answer, gold.answer, policy, EvaluatedFormulas())
    except TooCostly as refusal:
        return Decision(Verdict.REFUSED, None, str(refusal))
    if outcome.same is None and "peer" in policy.tiers and may_ask_peer(answer.text, gold.text):
        from workings.grading.rules.peer import peer_says_equal

        if peer_says_equal(answer.text, gold.text):
            return Decision(Verdict.EQUAL, "peer", "math-verify finds them equal")
    return _decision(outcome)


def _decision(outcome: Outcome) -> Decision:
    if outcome.same is None:
        return Decision(Verdict.UNDECIDED, None, outcome.reason)
    verdict = Verdict.EQUAL if outcome.same else Verdict.DIFFERENT
    return Decision(verdict, outcome.tier, outcome.reason)


def _with_units(answer: Answer, gold: Answer) -> tuple[Answer, Answer] | None:
    """The pair with a single letter behind a value taken for a unit, where the other side allows.

    "7g" is seven grams beside "7 kg" and beside a bare 7; "7x" is a product beside everything.
    """
    if isinstance(answer, Expression) and isinstance(gold, Number):
        guess = read_with_unit(answer.text) if answer.unit is None else None
        return None if guess is None else (guess, gold)
    if isinstance(gold, Expression) and gold.unit is None and isinstance(answer, Number):
        guess = read_with_unit(gold.text) if answer.unit is not None else None
        return None if guess is None else (answer, guess)
    return None
