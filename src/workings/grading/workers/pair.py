"""What a worker does with a task: compare one answer with one gold."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from workings.grading.policy import GradingPolicy
from workings.grading.rules import peer
from workings.grading.tiers import decide
from workings.types import Verdict

_SAMPLES = (
    ("x+1", "1+x"),
    (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}"),
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"\{1,\sqrt{2}\}", r"\{\sqrt{2},1\}"),
    (
        r"(\frac{1}{3})!+e^{\sqrt{2}}+\ln 3+\arctan 2",
        r"\arctan 2+\ln 3+e^{\sqrt{2}}+(\frac{1}{3})!",
    ),
    (r"\sin(x)+\frac{\pi}{3}", r"\frac{\pi}{3}+\sin x"),
)


def warm_up() -> None:
    """Load what the first comparisons would load."""
    peer.warm_up()
    for left, right in _SAMPLES:
        decide(left, right, GradingPolicy(), in_worker=True)
        peer.peer_says_equal(left, right)


def answer(task: Mapping[str, Any]) -> dict[str, str | None]:
    """{"verdict", "tier", "reason", "detail"} for {"answer", "gold", "policy"}.

    Never an exception: `detail` says which error stood behind "refused" or "internal_error".
    """
    try:
        policy = GradingPolicy(**{**task["policy"], "tiers": tuple(task["policy"]["tiers"])})
        decision = decide(task["answer"], task["gold"], policy, in_worker=True)
    except (MemoryError, RecursionError) as error:
        gc.collect()
        return _reply(Verdict.REFUSED, reason="too large to evaluate", detail=repr(error)[:500])
    except Exception as error:  # whatever a parser does with model text must not end the worker
        return _reply(Verdict.INTERNAL_ERROR, detail=repr(error)[:500])
    if decision is None:
        return _reply(Verdict.UNDECIDED)
    return _reply(decision.verdict, tier=decision.tier, reason=decision.reason)


def _reply(
    verdict: Verdict,
    *,
    tier: str | None = None,
    reason: str | None = None,
    detail: str | None = None,
) -> dict[str, str | None]:
    return {"verdict": verdict.value, "tier": tier, "reason": reason, "detail": detail}
