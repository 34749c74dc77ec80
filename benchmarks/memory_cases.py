"""What benchmarks/memory.py trains under which cap, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCase:
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
RECOMPUTED = {"batch.activation_checkpointing": "full"}
OFFLOADED = {"optimizer.offload": True}
CASES = {
    case.name: case
    for case in (
        MemoryCase(
            name="full",
            title="all weights, optimizer.offload",
            cap_gib=24,
            overrides={**OFFLOADED, **RECOMPUTED},
        ),
        MemoryCase(
            name="gradients",
            title="all weights, optimizer.offload and offload_gradients",
            cap_gib=16,
            overrides={**OFFLOADED, "optimizer.offload_gradients": True, **RECOMPUTED},
        ),
        MemoryCase(
            name="8bit",
            title="all weights, adamw_8bit",
            cap_gib=32,
            overrides={"optimizer.name": "adamw_8bit", **RECOMPUTED},
            needs="bitsandbytes",
        ),
        MemoryCase(
            name="lora",
            title="LoRA of rank 32",
            cap_gib=12,
            overrides={**LORA, **RECOMPUTED},
        ),
        MemoryCase(
            name="qlora",
            title="LoRA of rank 32 on 4 bits",
            cap_gib=12,
            overrides={**LORA, "model.quantization": "4bit", **RECOMPUTED},
            needs="bitsandbytes",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did: `error` is None where it fits.

    Attributes:
        account: of the error: the end of its traceback, and what torch's allocator held.
        held_gib: most of the card that the process held, all in all.
        allocated_gib, reserved_gib: most that torch's allocator gave out, and kept.
        step_seconds: of every step but the first.
        phases: seconds of the last step by phase.
    """

    error: str | None = None
    account: str = ""
    held_gib: float = 0.0
    allocated_gib: float = 0.0
    reserved_gib: float = 0.0
    step_seconds: Sequence[float] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
