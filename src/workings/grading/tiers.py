"""The tiers that decide in the caller's process: same text, same number, same short structure."""

from __future__ import annotations

from dataclasses import dataclass

from workings.grading.braces import max_depth
from workings.grading.gold import read
from workings.grading.normalise import canonical
from workings.grading.number import read_measure, same_number
from workings.grading.policy import GradingPolicy, Tier
from workings.grading.structure import same_structure
from workings.types import Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the tier that reached it."""

    verdict: Verdict
    tier: Tier | None = None


def decide(answer: str, gold: str, policy: GradingPolicy) -> Decision | None:
    """The verdict of the tiers that need no worker; None where the pair is still open.

    `gold` has been checked (`gold_fault`); `answer` is whatever a model wrote.
    """
    if len(answer) > policy.max_answer_length:
        same_text = "string" in policy.tiers and answer.strip() == gold.strip()
        return Decision(Verdict.EQUAL, "string") if same_text else Decision(Verdict.REFUSED)
    if not canonical(answer):
        return Decision(Verdict.NO_ANSWER)
    if "string" in policy.tiers and canonical(answer) == canonical(gold):
        return Decision(Verdict.EQUAL, "string")
    if max_depth(answer) > policy.max_depth:
        return Decision(Verdict.REFUSED)
    left, right = read(answer), read(gold)
    if left.name is not None and right.name is not None and left.name != right.name:
        return None
    if "string" in policy.tiers and canonical(left.body) == canonical(right.body):
        return Decision(Verdict.EQUAL, "string")
    number, gold_number = left.number, right.number
    if number is None and gold_number is not None and gold_number.unit is not None:
        number = read_measure(left.body)
    elif gold_number is None and number is not None and number.unit is not None:
        gold_number = read_measure(right.body)
    if "number" in policy.tiers and number is not None and gold_number is not None:
        same = same_number(number, gold_number)
        return Decision(Verdict.EQUAL if same else Verdict.DIFFERENT, "number")
    if "structure" in policy.tiers:
        alike = same_structure(left.body, right.body)
        if alike is not None:
            return Decision(Verdict.EQUAL if alike else Verdict.DIFFERENT, "structure")
    return None
