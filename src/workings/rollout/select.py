"""Which engine a run gets, and why, in one printable line. Imports no torch."""

from __future__ import annotations

from typing import NamedTuple

from workings.errors import EngineError, unknown_name

ALIASES = {"hf": "transformers"}
AVAILABLE = ("transformers", "scripted")
LATER = ("paged", "vllm", "server")


class EngineChoice(NamedTuple):
    """Name of an engine and the reason for it."""

    name: str
    reason: str


def choose_engine(name: str, device: str) -> EngineChoice:
    """The engine for a configured name on a device ("cpu", "cuda", "cuda:1").

    >>> choose_engine("auto", "cpu")
    EngineChoice(name='transformers', reason='it samples any model on a CPU')
    >>> choose_engine("hf", "cpu").name
    'transformers'

    Raises EngineError for a name that is unknown, or not built yet.
    """
    if name == "auto":
        where = "a CPU" if device.startswith("cpu") else f"the device {device}"
        return EngineChoice("transformers", f"it samples any model on {where}")
    resolved = ALIASES.get(name, name)
    if resolved in AVAILABLE:
        alias = f" ({name} is another name for it)" if resolved != name else ""
        return EngineChoice(resolved, f"as configured{alias}")
    if resolved in LATER:
        raise EngineError(
            f"engine {name!r} is not part of this version; it comes later in the 0.1 series",
            hint="use engine.name=auto or engine.name=transformers",
        )
    raise EngineError(unknown_name("engine", name, ("auto", *ALIASES, *AVAILABLE, *LATER)))
