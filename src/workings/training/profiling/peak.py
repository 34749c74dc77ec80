"""The peak of memory over a stretch of work, on a GPU or in this process."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import torch

from workings.training.metrics import peak_memory_bytes

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Begin a new peak at what is held now, after giving back what is not.

    On a CPU this is Linux's own count of resident memory; elsewhere the peak of the whole process
    stays.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        try:
            _CLEAR.write_text("5")
        except OSError:  # a container may forbid it; the peak is then the process's own
            return


def peak_since_reset(device: torch.device) -> int:
    """The most bytes held since `reset_peak`: allocated on a GPU, resident in the process."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif _STATUS.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        if found is not None:
            return int(found[1]) * 1024
    return peak_memory_bytes(device)
