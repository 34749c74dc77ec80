"""GRPO of a 1.5B model under a cap on the card's memory, engine and trainer together.

    python benchmarks/memory.py [--case full --case lora] [--shape 1.5B] [--steps 3] [--output FILE]

Every case runs in a process of its own: `train_grpo` on random weights of the shape, prompts of
random ids, a rule as reward, groups of 8, rows of 2,048 tokens. The cap holds twice over. torch's
allocator may take no more (`set_per_process_memory_fraction`), and all that the card has beyond the
cap is taken away before anything is loaded, so that what torch does not see (the CUDA context, the
engine's cache, graphs, libraries) has to fit as well. What is reported is the most that the process
held, measured on the card while it ran.

A case that does not fit is reported with its error and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from grpo_cases import even_ids
from measured import RESULTS, Row, document, write
from shapes import SHAPES, Shape, random_prompts, text_of, write_model

GIB = 2**30
WATCH_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A way to train under a cap.

    Attributes:
        cap_gib: memory of the card that the process may hold, its CUDA context included.
        overrides: of the run's configuration.
        needs: a package without which the case is left out.
    """

    name: str
    title: str
    cap_gib: float
    overrides: Mapping[str, Any] = field(default_factory=dict)
    needs: str | None = None


LORA = {"model.lora": {"rank": 32, "alpha": 64.0}}
FULL_RECOMPUTATION = {"batch.activation_checkpointing": "full"}
CASES = {
    case.name: case
    for case in (
        Case(
            name="full",
            title="all weights, optimizer.offload",
            cap_gib=24,
            overrides={"optimizer.offload": True, **FULL_RECOMPUTATION},
        ),
        Case(
            name="gradients",
            title="all weights, optimizer.offload and offload_gradients",
            cap_gib=16,
            overrides={
                "optimizer.offload": True,
                "optimizer.offload_gradients": True,
                **FULL_RECOMPUTATION,
            },
        ),
        Case(
            name="8bit",
            title="all weights, adamw_8bit",
            cap_gib=32,
            overrides={"optimizer.name": "adamw_8bit", **FULL_RECOMPUTATION},
            needs="bitsandbytes",
        ),
        Case(
            name="lora",
            title="LoRA of rank 32",
            cap_gib=12,
            overrides={**LORA, **FULL_RECOMPUTATION},
        ),
        Case(
            name="qlora",
            title="LoRA of rank 32 on 4 bits",
            cap_gib=12,
            overrides={**LORA, "model.quantization": "4bit", **FULL_RECOMPUTATION},
            needs="bitsandbytes",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of the run; the same for every case."""

    shape: str = "1.5B"
    device: str = "cuda"
    num_steps: int = 3
    num_prompts: int = 4
    num_generations: int = 8
    prompt_tokens: int = 256
    output_tokens: int = 1792
    microbatch_tokens: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did: `error` is None where it fits.

    Attributes:
        held_gib: most of the card that the process held, all in all.
        allocated_gib, reserved_gib: most that torch's allocator gave out, and kept.
        step_seconds: of every step but the first.
        phases: seconds of the last step by phase.
    """

    error: str | None = None
    held_gib: float = 0.0
    allocated_gib: float = 0.0
    reserved_gib: float = 0.0
    step_seconds: Sequence[float] = ()
    phases: Mapping[str, float] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    sizes = Sizes(
        shape=options.shape,
        device=options.device,
        num_steps=options.steps,
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.output_tokens,
        microbatch_tokens=options.microbatch_tokens,
    )
    rows: list[Row] = []
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        model = Path(options.models or folder) / sizes.shape
        _write_model(sizes, model)
        for name in options.case or list(CASES):
            case = CASES[name]
            if case.needs is not None and not _is_installed(case.needs):
                print(f"{name}: left out, {case.needs} is not installed")
                continue
            outcome = _apart(case, sizes, model)
            failed = failed or outcome.error is not None
            print(_line(case, outcome), flush=True)
            rows += _rows(case, sizes, outcome)
    content = document(
        "memory",
        rows,
        command="python " + " ".join(["benchmarks/memory.py", *arguments]),
        commit=options.commit,
        device=_device(sizes.device),
        packages=("bitsandbytes",),
        notes=[
            f"{sizes.num_prompts} x {sizes.num_generations} samples of {sizes.prompt_tokens} + "
            f"{sizes.output_tokens} tokens a step, microbatches of {sizes.microbatch_tokens:,} "
            "tokens, bfloat16, the paged engine; held: the whole process, context included"
        ],
    )
    write(Path(options.output), content)
    return int(failed)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--shape", default="1.5B", choices=list(SHAPES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=1792)
    parser.add_argument("--microbatch-tokens", type=int, default=8192)
    parser.add_argument("--models", help="folder that keeps the model's random weights")
    parser.add_argument("--commit", help="to record where there is no repository")
    parser.add_argument("--output", default=str(RESULTS / "memory.json"))
    return parser.parse_args(arguments)


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _device(name: str) -> dict[str, Any]:
    import torch

    if not name.startswith("cuda"):
        return {}
    return {
        "gpu": torch.cuda.get_device_name(name),
        "gpu_memory_gb": round(torch.cuda.get_device_properties(name).total_memory / 1e9, 1),
    }


# -------------------------------------------------------------------------------- one case, apart


def _write_model(sizes: Sizes, folder: Path) -> None:
    """Random weights, by a process that then leaves the card."""
    process = multiprocessing.get_context("spawn").Process(
        target=write_model,
        args=(SHAPES[sizes.shape], folder),
        kwargs={"device": sizes.device},
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"writing the model ended with {process.exitcode}")


def _apart(case: Case, sizes: Sizes, model: Path) -> Outcome:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_case, args=(theirs, case, sizes, model))
    process.start()
    theirs.close()
    try:
        outcome: Outcome = ours.recv()
    except EOFError:
        outcome = Outcome(error="the process died without a word")
    process.join()
    return outcome


def _run_case(pipe: Connection, case: Case, sizes: Sizes, model: Path) -> None:
    watch = _Watch(sizes.device)
    recorder_rows: list[Mapping[str, float]] = []
    error = None
    try:
        with _capped(case.cap_gib, sizes.device) as taken, watch.over(taken):
            _train(case, sizes, model, recorder_rows)
    except Exception as failure:
        traceback.print_exc()
        error = f"{type(failure).__name__}: {str(failure).splitlines()[0]}"
    later = recorder_rows[1:] or recorder_rows
    phases = {
        name.removeprefix("timing/"): value
        for row in later[-1:]
        for name, value in row.items()
        if name.startswith("timing/")
    }
    allocated, reserved = _allocator_peaks(sizes.device)
    pipe.send(
        Outcome(
            error=error,
            held_gib=watch.most / GIB,
            allocated_gib=allocated / GIB,
            reserved_gib=reserved / GIB,
            step_seconds=[row["step_time"] for row in later],
            phases=phases,
        )
    )


@contextmanager
def _capped(cap_gib: float, device: str) -> Iterator[int]:
    """The bytes of the card that are taken away, so that the process can hold no more than the cap.

    They are taken from the driver, not from torch, whose own limit is set to the cap as well.
    """
    if not device.startswith("cuda"):
        yield 0
        return
    import torch

    from workings.models.placement import numbered
    from workings.rollout.paged.device_memory import DeviceMemory

    card = numbered(torch.device(device))
    _, total = torch.cuda.mem_get_info(card)
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap_gib * GIB / total), card)
    ballast = DeviceMemory(max(1, total - int(cap_gib * GIB)), card)
    try:
        yield ballast.size
    finally:
        ballast.free()


def _allocator_peaks(device: str) -> tuple[int, int]:
    import torch

    if not device.startswith("cuda"):
        return 0, 0
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


class _Watch:
    """The most memory of the card in use while it looks on, what was taken away left out.

    Nothing else may run on the card.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._over = threading.Event()
        self.most = 0

    @contextmanager
    def over(self, taken: int) -> Iterator[None]:
        """Look on during the block."""
        thread = threading.Thread(target=self._look, args=(taken,), daemon=True)
        if self._device.startswith("cuda"):
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            if thread.is_alive():
                thread.join()

    def _look(self, taken: int) -> None:
        import torch

        while not self._over.is_set():
            free, total = torch.cuda.mem_get_info(self._device)
            self.most = max(self.most, total - free - taken)
            time.sleep(WATCH_SECONDS)


def _train(case: Case, sizes: Sizes, model: Path, rows: list[Mapping[str, float]]) -> None:
    """The run itself: the policy and the engine as a configured run has them, and its loop."""
    from workings.cli.build import build_policy
    from workings.cli.engines import build_engine
    from workings.config.grpo import GRPOConfig
    from workings.data.sampler import PromptSampler
    from workings.rewards.components import Component
    from workings.rewards.reward import Reward
    from workings.rollout.engine import SamplingParams
    from workings.tracking.recorder import Recorder
    from workings.training.checkpointer import Checkpointer, RunPaths
    from workings.training.grpo import train_grpo
    from workings.training.stop import StopRequest

    class Kept(Recorder):
        def record(self, step: int, metrics: Mapping[str, float], prefix: Any = "train") -> None:
            rows.append(dict(metrics))

    config = GRPOConfig.model_validate(run_settings(case, sizes, model))
    policy = build_policy(
        config.model, seed=config.seed, masters_elsewhere=config.optimizer.offload
    )
    print("\n".join(policy.report), file=sys.stderr)
    engine, line = build_engine(config.engine, policy)
    print(line, file=sys.stderr)
    recorder = Kept(None)
    train_grpo(
        config,
        model=policy.model,
        engine=engine,
        sampler=PromptSampler(
            prompts_of(SHAPES[sizes.shape], sizes), prompts_per_step=sizes.num_prompts, seed=0
        ),
        sampling=SamplingParams(
            temperature=1.0, max_tokens=sizes.output_tokens, min_tokens=sizes.output_tokens
        ),
        reward=Reward(
            settings={},
            components=(Component(name="even_ids", function=even_ids),),
            gold_fault=lambda gold: None,
        ),
        recorder=recorder,
        checkpointer=Checkpointer(
            RunPaths(folder=Path()), None, recorder, kind="grpo", config_text="", at_end=False
        ),
        stop=StopRequest(),
        autocast=policy.autocast,
        pad_id=policy.pad_id,
    )
    engine.close()


def run_settings(case: Case, sizes: Sizes, model: Path) -> dict[str, Any]:
    """The run's configuration: defaults, sizes, and what the case overrides."""
    run: dict[str, Any] = {
        "name": "memory",
        "model": {"name_or_path": str(model), "device": sizes.device, "dtype": "bfloat16"},
        "data": {"train": {"path": "random"}},
        "prompts_per_step": sizes.num_prompts,
        "num_generations": sizes.num_generations,
        "max_steps": sizes.num_steps,
        "sampling": {"max_tokens": sizes.output_tokens},
        "optimizer": {"learning_rate": 1e-6},
        "batch": {"microbatch_tokens": sizes.microbatch_tokens},
    }
    for name, value in case.overrides.items():
        section, key = name.split(".")
        run[section][key] = value
    return run


def prompts_of(shape: Shape, sizes: Sizes) -> list[Any]:
    """Prompts of random ids for all steps."""
    from workings.types import Problem, Prompt

    count = sizes.num_prompts * sizes.num_steps
    return [
        Prompt(
            problem=Problem(id=f"random/{number}", question=text_of(ids), answer="0"),
            ids=ids,
            text=text_of(ids),
        )
        for number, ids in enumerate(random_prompts(shape, count, sizes.prompt_tokens, seed=17))
    ]


# ---------------------------------------------------------------------------------------- results


def _line(case: Case, outcome: Outcome) -> str:
    verdict = "fits" if outcome.error is None else f"FAILS, {outcome.error}"
    seconds = ", ".join(f"{value:.2f}" for value in outcome.step_seconds)
    phases = json.dumps({name: round(value, 3) for name, value in outcome.phases.items()})
    return (
        f"{case.name} ({case.title}) under {case.cap_gib:g} GiB: {verdict}; held "
        f"{outcome.held_gib:.2f} GiB (torch allocated {outcome.allocated_gib:.2f}, reserved "
        f"{outcome.reserved_gib:.2f}); steps of {seconds or '-'} s; {phases}"
    )


def _rows(case: Case, sizes: Sizes, outcome: Outcome) -> list[Row]:
    if outcome.error is not None:
        return []
    name = f"{sizes.shape}, {case.title}"
    held: Row = {
        "name": f"{name}, memory held",
        "value": round(outcome.held_gib, 2),
        "unit": "GiB",
        "n": sizes.num_steps,
        "note": f"under a cap of {case.cap_gib:g} GiB on the process",
    }
    if not outcome.step_seconds:
        return [held]
    seconds = sorted(outcome.step_seconds)
    step: Row = {
        "name": f"{name}, a step",
        "value": round(seconds[len(seconds) // 2], 3),
        "unit": "s",
        "low": round(seconds[0], 3),
        "high": round(seconds[-1], 3),
        "n": len(seconds),
    }
    return [held, step]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
