"""How long does a GRPO step take, end to end? `train_grpo` against TRL with vLLM in its process.

    python benchmarks/grpo_step.py [--cases 135M,1.5B] [--sides ours,trl,trl_defaults] [--steps 3]
                                   [--budget SECONDS] [--set KEY=VALUE] [--out FILE] [--record]

The same model (random weights), batch, lengths and reward on both sides: prompts of random ids,
completions of exactly as many tokens as the case says, one AdamW step on the whole batch, float32
weights with bfloat16 arithmetic. Where the models are small, sides share the card and take turns
step by step; otherwise they come one after another. The first steps, in which things are compiled
and captured, are not counted; a side for which no time was left after them is shown by its last
one, and the note says so. Ours has the case's microbatches; TRL is tuned (no checkpointing,
Liger, larger microbatches) and as it comes; settings in the notes of the file. A rate is sampled
tokens over the whole step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from grpo_cases import CASES, Case
from grpo_sides import PHASES, Step, trl_settings
from measured import RESULTS, Row, command_line
from measurement import Measurement, default_models, names_in, override, refuse_unknown
from workers import WorkerFailed

OURS, TUNED, DEFAULTS = "ours", "trl", "trl_defaults"
SIDES = (OURS, TUNED, DEFAULTS)
ROOMY_GIB = 120
SHARES = {"135M": 0.15, "tiny": 0.1}
"""vLLM's share of the card when tuned, by shape; larger ones as below."""
LARGE_SHARE, LARGE_SHARE_ASLEEP = 0.4, 0.5
"""With vLLM awake while it trains (a card of ROOMY_GIB), and asleep."""


class StepMeasurement(Measurement):
    """The state of one call."""

    benchmark = "grpo_step"
    packages = ("trl", "vllm")
    factories: ClassVar = {OURS: "grpo_sides:ours"} | dict.fromkeys(
        (TUNED, DEFAULTS), "grpo_sides:trl"
    )
    preloaded: ClassVar = {OURS: ("torch", "transformers")} | dict.fromkeys(
        (TUNED, DEFAULTS), ("vllm.entrypoints.llm", "trl")
    )

    def run(self) -> None:
        """Measures case after case; a side that fails is left out, and said."""
        for name in self.given.cases:
            case = CASES[name]
            sides, before = self.given.sides, self.rows
            steps: dict[str, list[Step]] = {side: [] for side in sides}
            warmups: dict[str, Step] = {}
            try:
                for side in sides:  # They import meanwhile, and hold none of the card.
                    self.start(side)
                memory = self.write_model(case.shape)
                settings = {side: self._settings(case, side, memory) for side in sides}
                for group in together(case, sides, roomy=memory >= ROOMY_GIB):
                    self._measure(case, group, settings, steps, warmups)
                    self.stop(*group)
                    self._keep(before, case, steps, warmups)
            finally:
                self.stop()
                self._keep(before, case, steps, warmups)

    def _keep(
        self,
        before: list[Row],
        case: Case,
        steps: Mapping[str, Sequence[Step]],
        warmups: Mapping[str, Step],
    ) -> None:
        """Writes what there is, since a call may be ended while the next side begins."""
        self.rows = before + rows(case, steps, warmups)
        if self.rows:
            self.write()

    def _measure(
        self,
        case: Case,
        sides: Sequence[str],
        settings: Mapping[str, Mapping[str, Any]],
        steps: dict[str, list[Step]],
        warmups: dict[str, Step],
    ) -> None:
        """Fills `warmups` with the last one of every side, then `steps`, in turns."""
        running = list(sides)
        for number in range(-self.given.warmup, self.given.steps):
            for side in list(running):
                expected = steps[side][-1].seconds if steps[side] else 0.0
                if not self.budget.allows(1.2 * expected):
                    print(f"no time left for step {number} of {side}", flush=True)
                    running.remove(side)
                    continue
                try:
                    step: Step = self.workers[side].call(
                        "step", case, settings[side], timeout=self.budget.left
                    )
                except WorkerFailed as error:
                    print(error, file=sys.stderr, flush=True)
                    running.remove(side)
                    continue
                spent = ", ".join(f"{name} {step.phases[name]:.2f}" for name in PHASES)
                print(
                    f"[{self.budget.spent:4.0f} s] {case.name}, {side}, step {number}: "
                    f"{step.seconds:.2f} s ({spent})",
                    flush=True,
                )
                if number < 0:
                    warmups[side] = step
                else:
                    steps[side].append(step)

    def _settings(self, case: Case, side: str, memory: float) -> dict[str, Any]:
        common = {
            "folder": str(self.given.models / case.shape),
            "out": str(self.given.models / "runs" / case.name / side),
        }
        if side == OURS:
            overrides = {**case.tuned, **dict(self.given.set)}
            asked = {"engine": self.given.engine, "share": self.given.share}
            self.note(f"ours, {case.title}", asked | overrides)
            return common | asked | {"device": self.given.device, "overrides": overrides}
        roomy = memory >= ROOMY_GIB
        share = SHARES.get(case.shape, LARGE_SHARE if roomy else LARGE_SHARE_ASLEEP)
        sleeps = case.shape not in SHAPES_AWAKE and not roomy
        asked = {"tuned": side == TUNED, "share": share, "sleeps": sleeps}
        settings = trl_settings(case, folder="", out="", **asked)
        listed = {key: value for key, value in settings.items() if value != ""}
        self.note(f"{title(side)}, {case.title}", listed)
        return common | asked


SHAPES_AWAKE = frozenset(SHARES)
"""Shapes so small that vLLM need not sleep while TRL trains."""


def together(case: Case, sides: Sequence[str], *, roomy: bool) -> list[list[str]]:
    """The sides that share the card, group after group.

    Where models are small it holds all; TRL at its defaults takes so much of a card that is not
    `roomy` that it comes by itself.

    >>> together(CASES["135M"], SIDES, roomy=False), together(CASES["1.5B"], SIDES[:2], roomy=True)
    ([['ours', 'trl'], ['trl_defaults']], [['ours'], ['trl']])
    """
    if not case.together:
        return [[side] for side in sides]
    apart = [] if roomy else [side for side in sides if side == DEFAULTS]
    return [group for group in ([side for side in sides if side not in apart], apart) if group]


def rows(
    case: Case, steps: Mapping[str, Sequence[Step]], warmups: Mapping[str, Step] | None = None
) -> list[Row]:
    """Ours against each of TRL's, or each side alone; then the phases of each.

    A side without a step that counts is there with its warm-up, if it has one.
    """
    warm = {side: step for side, step in (warmups or {}).items() if not steps.get(side)}
    steps = {side: done or [warm[side]] for side, done in steps.items() if done or side in warm}
    found: list[Row] = []
    for side in [one for one in steps if one != OURS] or list(steps):
        shown = OURS if OURS in steps else side
        rate = case.tokens / median(steps[shown])
        line: Row = {"name": f"GRPO step, {case.title}", "value": rate, "unit": "tokens/s"}
        line |= {"n": len(steps[shown]), "note": spread(shown, steps[shown], warm=shown in warm)}
        if shown == side:
            line["name"] += f", {title(side)} alone"
        else:
            theirs = case.tokens / median(steps[side])
            line["name"] += f", against {title(side)}"
            line |= {"peer": title(side), "peer_value": theirs, "ratio": rate / theirs}
            line["note"] += f"; {spread(side, steps[side], warm=side in warm)}"
        found.append(line)
    for side, done in steps.items():
        for phase in PHASES:
            seconds = statistics.median(step.phases[phase] for step in done)
            name = f"phases of a GRPO step, {case.title}: {title(side)}, by {phase}"
            found.append({"name": name, "value": seconds, "unit": "s", "n": len(done)})
    return found


def median(steps: Sequence[Step]) -> float:
    """Seconds of the median step."""
    return statistics.median(step.seconds for step in steps)


def spread(side: str, steps: Sequence[Step], *, warm: bool) -> str:
    """Median and range of a side, as text."""
    if warm:
        return f"{title(side)} {steps[0].seconds:.2f} s in its warm-up step, the only one it made"
    seconds = [step.seconds for step in steps]
    least, most = min(seconds), max(seconds)
    return (
        f"{title(side)} {median(steps):.2f} s a step ({least:.2f} to {most:.2f} of {len(seconds)})"
    )


def title(side: str) -> str:
    """A side's name for people."""
    return {OURS: "ours", TUNED: "TRL tuned", DEFAULTS: "TRL at its defaults"}[side]


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where a worker failed before it could be left out."""
    given = parser().parse_args(arguments)
    refuse_unknown(parser(), "case", given.cases, CASES)
    refuse_unknown(parser(), "side", given.sides, dict.fromkeys(SIDES))
    command = command_line("benchmarks/grpo_step.py", arguments)
    measurement = StepMeasurement(given, command=command)
    try:
        measurement.run()
    except WorkerFailed as error:
        print(error, file=sys.stderr)
        return 1
    for line in measurement.rows:
        print(f"{line['name']}: {line['value']:,.2f} {line['unit']} {line.get('note', '')}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--cases", type=names_in, default=["135M", "1.5B"], metavar="NAME,...")
    options.add_argument("--sides", type=names_in, default=list(SIDES), metavar="NAME,...")
    options.add_argument("--steps", type=int, default=3, help="that count, of every side")
    options.add_argument("--warmup", type=int, default=1, help="steps before those")
    options.add_argument("--engine", default="paged", help="ours: paged or transformers")
    options.add_argument("--device", default="cuda")
    options.add_argument("--share", type=float, default=0.3, help="of the card, for our cache")
    options.add_argument(
        "--set",
        action="append",
        type=override,
        default=[],
        metavar="KEY=VALUE",
        help="of our run, such as batch.microbatch_tokens=16384",
    )
    options.add_argument("--budget", type=float, help="seconds after which nothing is begun")
    options.add_argument("--models", type=Path, default=default_models())
    options.add_argument("--out", type=Path, default=Path("runs/benchmarks/grpo_step.json"))
    options.add_argument("--commit", help="to record where there is no repository")
    options.add_argument(
        "--record", action="store_const", dest="out", const=RESULTS / "grpo_step.json"
    )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
