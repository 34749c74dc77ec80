"""Which engine a run gets, and why, in one printable line. Imports no torch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from workings.errors import EngineError, unknown_name

ALIASES = {"hf": "transformers"}
AVAILABLE = ("transformers", "paged", "vllm", "server", "scripted")
CPU_BATCH, CUDA_BATCH = 128, 1024
"""Rows that are decoded at once where the run does not say: a CPU and transformers, and a card."""


class EngineChoice(NamedTuple):
    """Name of an engine and the reason for it."""

    name: str
    reason: str


def choose_engine(
    name: str, device: str, *, not_paged: str | None = None, num_ranks: int = 1
) -> EngineChoice:
    """The engine for a configured name on a device ("cpu", "cuda", "cuda:1").

    `not_paged` says why the paged engine cannot sample the model; None, that it can. `num_ranks`
    is how many processes train; vLLM serves one.

    >>> choose_engine("auto", "cpu")
    EngineChoice(name='transformers', reason='it samples any model on a CPU')
    >>> choose_engine("auto", "cuda").name, choose_engine("hf", "cuda").name
    ('paged', 'transformers')

    Raises EngineError for an unknown name.
    """
    if name == "auto":
        return _best(device, not_paged, num_ranks)
    resolved = ALIASES.get(name, name)
    if resolved in AVAILABLE:
        alias = f" ({name} is another name for it)" if resolved != name else ""
        return EngineChoice(resolved, f"as configured{alias}")
    raise EngineError(unknown_name("engine", name, ("auto", *ALIASES, *AVAILABLE)))


def rows_at_once(configured: int | None, name: str, device: str) -> int:
    """Most rows that an engine of this (resolved or configured) name decodes at once.

    >>> rows_at_once(None, "auto", "cuda"), rows_at_once(None, "transformers", "cuda")
    (1024, 128)
    """
    if configured is not None:
        return configured
    slow = device.startswith("cpu") or name in ("transformers", "hf")
    return CPU_BATCH if slow else CUDA_BATCH


def _best(device: str, not_paged: str | None, num_ranks: int) -> EngineChoice:
    if device.startswith("cpu"):
        return EngineChoice("transformers", "it samples any model on a CPU")
    if not_paged is None:
        return EngineChoice("paged", f"the fastest on {device}, and it knows this kind of model")
    if num_ranks == 1 and find_spec("vllm") is not None:
        return EngineChoice("vllm", not_paged)
    return EngineChoice("transformers", f"it samples any model on {device}; {not_paged}")
