"""Worked examples of the rewards, scored by the rewards themselves."""

from __future__ import annotations

from collections.abc import Sequence

from generators.blocks import ROOT, Blocks, code, table

from workings.data.tags import Tags
from workings.rewards.r1_zero import Mode, question_only_reward_fn, r1_zero_reward_fn
from workings.rewards.tags import TagRewards

PAGE = ROOT / "docs" / "reference" / "rewards.md"
TAGS = Tags()
END, OPEN, CLOSE = TAGS.reasoning_end, TAGS.solution_start, TAGS.solution_end

R1_ZERO: Sequence[tuple[str, str]] = (
    ("9+9=18 </think> <answer>18</answer>", "18"),
    ("9+9=18 </think> <answer>\\boxed{18}</answer>", "18"),
    ("9+9=17 </think> <answer>17</answer>", "18"),
    ("9+9=18 </think>\n<answer>18</answer>", "18"),
    ("so it is \\boxed{18}", "18"),
    ("half </think> <answer>0.5</answer>", "1/2"),
    ("half </think> <answer>2/4</answer>", "1/2"),
)
QUESTION_ONLY: Sequence[tuple[str, str]] = (
    ("It is \\boxed{18}.", "18"),
    ("First \\boxed{17}, no: \\boxed{18}.", "18"),
    ("First \\boxed{18}, no: \\boxed{17}.", "18"),
    ("It is 18.", "18"),
    ("It is \\boxed{18", "18"),
)
TAGGED: Sequence[tuple[str, str]] = (
    (f"work{END}{OPEN}34{CLOSE}", "34"),
    (f"work{END}\n{OPEN}\n34\n{CLOSE}", "34"),
    (f"work{END}{OPEN}3 4{CLOSE}", "34"),
    (f"work{END}{OPEN}31{CLOSE}", "34"),
    (f"work{END}{OPEN}28{CLOSE}", "34"),
    (f"work{END}{OPEN}7{CLOSE}", "34"),
    (f"work{END}{OPEN}34", "34"),
    ("34, I think", "34"),
)


def blocks() -> Blocks:
    """The three tables of the rewards page."""
    return {
        PAGE: {
            "r1-zero-scores": _answers(R1_ZERO, "r1_zero"),
            "question-only-scores": _answers(QUESTION_ONLY, "question_only"),
            "tag-scores": _tags(),
        }
    }


def _answers(examples: Sequence[tuple[str, str]], name: str) -> str:
    function = r1_zero_reward_fn if name == "r1_zero" else question_only_reward_fn
    rows = []
    for response, gold in examples:
        cells = []
        modes: tuple[Mode, ...] = ("strict", "four_class")
        for mode in modes:
            for fast in (True, False):
                scores = function(response, gold, fast, mode=mode)
                cells.append("/".join(f"{value:g}" for value in scores.values()))
        rows.append([code(response), f"`{gold}`", *cells])
    headers = ["response", "gold", "strict, fast", "strict, slow"]
    return table([*headers, "four-class, fast", "four-class, slow"], rows)


def _tags() -> str:
    rows = []
    for response, gold in TAGGED:
        totals = []
        for profile in ("contract", "unsloth", "grpo-tests"):
            functions = TagRewards(profile=profile).functions()
            values = [f([""], [response], [gold])[0] for f in functions.values()]
            listed = ", ".join(f"{value:g}" for value in values if value is not None)
            totals.append(
                f"[{listed}] = {sum(values):g}" if profile == "contract" else f"{sum(values):g}"
            )
        rows.append([code(response), *totals])
    return table(["response (gold 34)", "contract", "unsloth", "grpo-tests"], rows)
