"""Engines that serve one trainer process say so to runs that have several."""

from __future__ import annotations

import torch.distributed

from workings.errors import EngineError


def check_one_process(engine: str) -> None:
    """Raise EngineError where this process is one rank of several."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        if size > 1:
            raise EngineError(
                f"{engine} serves one trainer process; this run has {size}",
                hint="use engine.name=auto, which samples in every process with its own weights",
            )
