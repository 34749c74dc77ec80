"""A case of benchmarks/memory.py in a process of its own: the cap, the run, and what it held."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpo_cases import Case, even_ids
from grpo_sides import prompts_of, run_settings
from memory_cases import MemoryCase, Outcome

GIB = 2**30
WATCH_SECONDS = 0.01
ACCOUNT_LINES = 30
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Trainer:
    """The worker; it does one case and has to be ended after it."""

    def run(
        self, case: MemoryCase, sizes: Case, model: str, device: str, overrides: Mapping[str, Any]
    ) -> Outcome:
        """What the case did; `overrides` of the run's configuration come after the case's."""
        watch = Watch(device)
        rows: list[Mapping[str, float]] = []
        error, account = None, ""
        try:
            with capped(case.cap_gib, device) as taken, watch.over(taken):
                train(case, sizes, model, device, overrides, rows)
        except Exception as failure:  # Whatever it was: other cases are still to come.
            error = " ".join(traceback.format_exception_only(failure)).splitlines()[0]
            account = account_of(failure, device)
        allocated, reserved = allocator_peaks(device)
        later = rows[1:] or rows
        return Outcome(
            error=error,
            account=account,
            held_gib=watch.most / GIB,
            allocated_gib=allocated / GIB,
            reserved_gib=reserved / GIB,
            step_seconds=[row["step_time"] for row in later],
            phases={
                name.removeprefix("timing/"): value
                for row in later[-1:]
                for name, value in row.items()
                if name.startswith("timing/")
            },
        )

    def close(self) -> None:
        """The process ends with all it holds."""


@contextmanager
def capped(cap_gib: float, device: str) -> Iterator[int]:
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


def account_of(failure: Exception, device: str) -> str:
    """The end of the traceback, and torch's own account of the memory it holds."""
    lines = "".join(traceback.format_exception(failure)).splitlines()[-ACCOUNT_LINES:]
    if device.startswith("cuda"):
        import torch

        lines.append(torch.cuda.memory_summary(device, abbreviated=True))
    return "\n".join(lines)


def allocator_peaks(device: str) -> tuple[int, int]:
    """Most bytes that torch's allocator gave out, and kept."""
    import torch

    if not device.startswith("cuda"):
        return 0, 0
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


class Watch:
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

        # While another thread captures a graph, this one's calls would spoil the capture.
        mode = ctypes.c_int(RELAXED)
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        while not self._over.is_set():
            free, total = torch.cuda.mem_get_info(self._device)
            self.most = max(self.most, total - free - taken)
            time.sleep(WATCH_SECONDS)


def train(
    case: MemoryCase,
    sizes: Case,
    model: str,
    device: str,
    overrides: Mapping[str, Any],
    rows: list[Mapping[str, float]],
) -> None:
    """The run itself: the policy and the engine as a configured run has them, and its loop.

    `rows` gets the metrics of every step.
    """
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

    placed = {"model.device": device, "model.dtype": "bfloat16"}
    settings = {"folder": model, "overrides": {**placed, **case.overrides, **overrides}}
    config = GRPOConfig.model_validate(run_settings(sizes, settings))
    policy = build_policy(
        config.model, seed=config.seed, masters_elsewhere=config.optimizer.offload
    )
    engine, line = build_engine(config.engine, policy)
    print("\n".join([*policy.report, line]), file=sys.stderr)
    recorder = Kept(None)
    train_grpo(
        config,
        model=policy.model,
        engine=engine,
        sampler=PromptSampler(prompts_of(sizes), prompts_per_step=sizes.prompts, seed=0),
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
