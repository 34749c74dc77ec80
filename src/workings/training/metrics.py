"""Metrics of speed and memory that every loop reports."""

from __future__ import annotations

import resource
import sys
import time

import torch


def speed_metrics(device: torch.device, *, seconds: float, num_tokens: int) -> dict[str, float]:
    """step_time (s), tokens_per_sec (trained tokens) and peak_memory_gb (10^9 bytes).

    Memory is the allocator's peak on CUDA and the process's peak resident size on the CPU.
    """
    return {
        "step_time": seconds,
        "tokens_per_sec": num_tokens / seconds if seconds > 0 else 0.0,
        "peak_memory_gb": peak_memory_bytes(device) / 1e9,
    }


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that this process has held on `device`, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Stopwatch:
    """Seconds spent in the named laps of one step."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Book the time since the last lap under `name`."""
        now = time.perf_counter()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds from the start to the last lap."""
        return self._last - self._start

    def metrics(self) -> dict[str, float]:
        """Laps as `timing/NAME`."""
        return {f"timing/{name}": seconds for name, seconds in self._laps.items()}
