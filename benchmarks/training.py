"""How fast is a training step, and how much memory does it take? This package against TRL.

    python benchmarks/training.py [--cases sft_2048,sft_8192,grpo_memory] [--repeats 3] [--steps 6]
                                  [--sides ours,trl,trl_defaults] [--set KEY=VALUE]
                                  [--budget SECONDS] [--out FILE] [--record]
    python benchmarks/training.py --variants [NAME,...]     our own variants, in one process

Random weights of a published shape, float32 with bfloat16 arithmetic; random ids. Sides alternate,
each in its own process, which holds the card only while it measures; the first steps of every
repeat, in which things are compiled, are not counted. TRL is tuned (Liger, no checkpointing, packed
rows; settings in the notes of the file) and as it comes. MFU is (6 x parameters x tokens + causal
attention at real lengths) / seconds / 989e12, nothing computed twice counted.

Where the time of a step of the 1.5B shape goes, 8 x 2,048 tokens, full parameters, at what an H100
gives (about 700 TFLOP/s of products, 3.0 TB/s); 52 % MFU is 312 ms:

    products of the layers: 6 x 1.31e9 x 16,384 = 129 TFLOP                            184 ms
    vocabulary: 6 x 0.233e9 x 16,384 = 23 TFLOP (8 more where logits are not kept)      33 ms
    attention: 10 TFLOP, backward counted 2.5 times; on rows of one length / packed  25/43 ms
    norms, rotation, gate, residuals: 1.2 GB forward, 2.4 GB backward a layer, fused    34 ms
    softmax over the logits: 5 GB written, read, turned into gradients, read twice       7 ms
    AdamW on float32: 28 bytes a weight; gradients' norm and clipping: 12               20 ms
    bfloat16 copies of weights and their gradients to float32: 6 + 6 bytes a weight      6 ms
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from measured import RESULTS, Row, command_line
from measurement import Measurement, names_in, override, refuse_unknown
from training_sides import (
    DENSE_PEAK,
    GRPOCase,
    Measured,
    SFTCase,
    trl_grpo_settings,
    trl_sft_settings,
)
from workers import WorkerFailed

OURS, TUNED, DEFAULTS = "ours", "trl", "trl_defaults"
TITLES = {OURS: "ours", TUNED: "TRL tuned", DEFAULTS: "TRL at its defaults"}
CASES: dict[str, SFTCase | GRPOCase] = {
    "sft_2048": SFTCase(shape="1.5B", rows=8, length=2048),
    "sft_8192": SFTCase(shape="1.5B", rows=2, length=8192),
    "sft_135M": SFTCase(shape="135M", rows=16, length=1024),
    "grpo_memory": GRPOCase(shape="1.5B", samples=8, prompt=256, length=4096),
    "smoke": SFTCase(shape="tiny", rows=2, length=32),
    "grpo_smoke": GRPOCase(shape="tiny", samples=4, prompt=4, length=16),
}
GRPO_STEPS = 2
OUR_MEMORY = tuple(
    {"checkpointing": how, "microbatch_tokens": 4096}
    for how in ("none", "selective", "full", "offloaded")
)
TRL_ROWS = {TUNED: 1, DEFAULTS: 8}
"""Rows of one pass in the GRPO step: few and kept, or all and recomputed."""


class TrainingMeasurement(Measurement):
    """The state of one call."""

    benchmark = "training"
    packages = ("trl", "liger-kernel")
    factories: ClassVar = {OURS: "training_sides:Ours"} | dict.fromkeys(
        (TUNED, DEFAULTS), "training_sides:TRL"
    )
    preloaded: ClassVar = {OURS: ("torch", "transformers"), TUNED: ("trl",), DEFAULTS: ("trl",)}

    def run(self) -> None:
        """Measures case after case; a side that fails is left out, and said."""
        try:
            for side in self.given.sides:
                self.start(side)
            if OURS in self.workers:
                self.device = self.workers[OURS].call("describe")
            for name in self.given.cases:
                case = CASES[name]
                found = self._sft(case) if isinstance(case, SFTCase) else self._grpo(case)
                if found:
                    self.rows += found
                    self.write()
        finally:
            self.stop()

    def _sft(self, case: SFTCase) -> list[Row]:
        measured: dict[str, list[Measured]] = {side: [] for side in self.workers}
        for side in (TUNED, DEFAULTS):
            if side in self.workers:
                self.note(
                    f"{TITLES[side]}, {case.title}", trl_sft_settings(case, 0, tuned=side == TUNED)
                )
        for repeat in range(self.given.repeats):
            for side in list(self.workers):
                settings = {"device": self.given.device, **self._side_settings(side)}
                arguments = (case, self.given.warmup, self.given.steps, settings)
                found = self._call(side, "sft", *arguments)
                if found is not None:
                    measured[side].append(found)
                    used = mfu(case, found.seconds)
                    print(
                        f"[{self.budget.spent:4.0f} s] {case.title}, {side}, repeat {repeat}: "
                        f"{found.seconds * 1e3:.1f} ms a step, {used:.1f} % MFU, "
                        f"{found.peak_gib:.1f} GiB",
                        flush=True,
                    )
        return sft_rows(case, {side: found for side, found in measured.items() if found})

    def _grpo(self, case: GRPOCase) -> list[Row]:
        peaks: dict[str, float] = {}
        for side in list(self.workers):
            every = [dict(one) for one in OUR_MEMORY]
            if side != OURS:
                every = [{"tuned": side == TUNED, "rows": min(TRL_ROWS[side], case.samples)}]
                settings = trl_grpo_settings(case, GRPO_STEPS, **every[0])
                self.note(f"{TITLES[side]}, {case.title}", settings)
            for settings in every:
                settings |= {"device": self.given.device}
                if side == OURS:
                    settings |= {"kernels": dict(self.given.set).get("model.kernels", "auto")}
                found = self._call(side, "grpo", case, GRPO_STEPS, settings)
                if found is None:
                    continue
                title = TITLES[side]
                if side == OURS:
                    title += f", checkpointing {settings['checkpointing']}"
                peaks[title] = found.peak_gib
                print(
                    f"[{self.budget.spent:4.0f} s] GRPO step, {case.title}, {title}: "
                    f"{found.peak_gib:.1f} GiB, {found.seconds:.2f} s",
                    flush=True,
                )
        return [
            {
                "name": f"peak memory of a GRPO step, {case.title}: GiB, by {title}",
                "value": peak,
                "unit": "GiB",
            }
            for title, peak in peaks.items()
        ]

    def _side_settings(self, side: str) -> dict[str, Any]:
        if side == OURS:
            return {"overrides": dict(self.given.set)}
        return {"tuned": side == TUNED, "dtype": "float32"}

    def _call(self, side: str, method: str, *arguments: Any) -> Measured | None:
        """What the worker measured; None, once and for all, where it fails or time is over."""
        if not self.budget.allows(30.0):
            print(f"no time left for {method} of {side}", flush=True)
            return None
        try:
            found: Measured = self.workers[side].call(method, *arguments, timeout=self.budget.left)
        except WorkerFailed as error:
            print(error, file=sys.stderr, flush=True)
            self.stop(side)
            return None
        return found


def mfu(case: SFTCase, seconds: float) -> float:
    """Percent of the card's peak that useful products of a step make up."""
    return 100 * case.flops / seconds / DENSE_PEAK


def sft_rows(case: SFTCase, measured: Mapping[str, Sequence[Measured]]) -> list[Row]:
    """Our rate against each of TRL's, MFU of every side, and the memory of every side."""
    found: list[Row] = []
    medians = {
        side: statistics.median(one.seconds for one in every) for side, every in measured.items()
    }
    for side in [one for one in medians if one != OURS] if OURS in medians else []:
        found.append(
            {
                "name": f"SFT, {case.title}, against {TITLES[side]}",
                "value": case.tokens / medians[OURS],
                "unit": "tokens/s",
                "n": len(measured[OURS]),
                "peer": TITLES[side],
                "peer_value": case.tokens / medians[side],
                "ratio": medians[side] / medians[OURS],
                "note": f"{spread(OURS, measured[OURS])}; {spread(side, measured[side])}",
            }
        )
    for side, every in measured.items():
        table = f"SFT, {case.title}"
        seconds = medians[side]
        rate, used = case.tokens / seconds, mfu(case, seconds)
        peak = statistics.median(one.peak_gib for one in every)
        for column, value, unit in (
            ("rate", rate, "tokens/s"),
            ("MFU", used, "%"),
            ("peak memory", peak, "GiB"),
        ):
            found.append(
                {"name": f"{table}: {column}, by {TITLES[side]}", "value": value, "unit": unit}
                | {"n": len(every)}
            )
    return found


def spread(side: str, every: Sequence[Measured]) -> str:
    """Median and range of a side's repeats, as text."""
    milliseconds = [1e3 * one.seconds for one in every]
    passes = max(one.passes for one in every)
    return (
        f"{TITLES[side]} {statistics.median(milliseconds):.1f} ms a step "
        f"({min(milliseconds):.1f} to {max(milliseconds):.1f} of {len(every)}"
        + (f", in {passes} passes for its memory)" if passes > 1 else ")")
    )


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where nothing could be measured."""
    given = parser().parse_args(arguments)
    refuse_unknown(parser(), "case", given.cases, CASES)
    refuse_unknown(parser(), "side", given.sides, TITLES)
    if given.variants is not None:
        from training_variants import measure_variants

        return measure_variants(given.variants, device=given.device, seconds=given.budget or 170.0)
    command = command_line("benchmarks/training.py", arguments)
    measurement = TrainingMeasurement(given, command=command)
    measurement.run()
    for line in measurement.rows:
        print(f"{line['name']}: {line['value']:,.2f} {line.get('unit', '')} {line.get('note', '')}")
    return 0 if measurement.rows else 1


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cases = ["sft_2048", "sft_8192", "grpo_memory"]
    options.add_argument("--cases", type=names_in, default=cases, metavar="NAME,...")
    options.add_argument("--sides", type=names_in, default=list(TITLES), metavar="NAME,...")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--steps", type=int, default=6, help="that count, in every repeat")
    options.add_argument("--warmup", type=int, default=3, help="steps before those")
    options.add_argument("--device", default="cuda")
    options.add_argument(
        "--set",
        action="append",
        type=override,
        default=[],
        metavar="KEY=VALUE",
        help="of our run, such as model.kernels=compiled",
    )
    options.add_argument(
        "--variants",
        type=names_in,
        nargs="?",
        const=[],
        help="time our own variants instead; all, or those named",
    )
    options.add_argument("--budget", type=float, help="seconds after which nothing is begun")
    options.add_argument("--out", type=Path, default=Path("runs/benchmarks/training.json"))
    options.add_argument("--commit", help="to record where there is no repository")
    options.add_argument(
        "--record", action="store_const", dest="out", const=RESULTS / "training.json"
    )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
