"""What the benchmarks that compare sides share: workers, models, rows, notes and the file."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from measured import Row, document, write
from shapes import SHAPES, write_model
from workers import Budget, Elsewhere

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class Measurement:
    """The state of one call: sides that are up, what was measured, the file it goes to.

    Attributes:
        benchmark, packages: of the file; see measured.document.
        factories, preloaded: of each side; see workers.Elsewhere.
    """

    benchmark: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    factories: ClassVar[Mapping[str, str]] = {}
    preloaded: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, given: argparse.Namespace, *, command: str) -> None:
        self.given = given
        self.command = command
        self.budget = Budget(given.budget)
        self.workers: dict[str, Elsewhere] = {}
        self.rows: list[Row] = []
        self.written: set[str] = set()
        self.notes: list[str] = []
        self.device: dict[str, Any] = {}

    def start(self, side: str) -> Elsewhere:
        """The side in a process of its own, which begins with what takes long to import."""
        self.workers[side] = Elsewhere(
            self.factories[side], environment=ENVIRONMENT, preload=self.preloaded.get(side, ())
        )
        return self.workers[side]

    def stop(self, *sides: str) -> None:
        """Ends these sides, or all."""
        for side in sides or tuple(self.workers):
            self.workers.pop(side).close()

    def write_model(self, shape: str) -> float:
        """Writes the model, where it is not there; GiB of memory on the card.

        A process of its own does it, so that none of the card stays taken.
        """
        maker = Elsewhere("measurement:Maker", environment=ENVIRONMENT)
        try:
            folder = str(self.given.models / shape)
            memory: float = maker.call("make", shape, folder, self.given.device)
            self.device = maker.call("describe", self.given.device)
        finally:
            maker.close()
        return memory

    def note(self, title: str, settings: Mapping[str, Any]) -> None:
        """Has the file list these settings, once."""
        listed = ", ".join(f"{key} {value}" for key, value in settings.items())
        if (note := f"{title}: {listed}.") not in self.notes:
            self.notes.append(note)

    def write(self) -> None:
        """The file, with what there is by now in place of what this call wrote before."""
        content = document(
            self.benchmark,
            self.rows,
            command=self.command,
            commit=self.given.commit,
            device=self.device,
            packages=self.packages,
            notes=self.notes,
        )
        write(self.given.out, content, replaced=self.written)
        self.written = {row["name"] for row in self.rows}


class Maker:
    """A worker that writes a model, and says how many GiB the card has (0 without one)."""

    def make(self, shape: str, folder: str, device: str) -> float:
        """GiB of memory on the card; the model lies in `folder` then."""
        import torch

        write_model(SHAPES[shape], Path(folder), device=device)
        if not device.startswith("cuda"):
            return 0.0
        return float(torch.cuda.get_device_properties(0).total_memory) / 2**30

    def describe(self, device: str) -> dict[str, Any]:
        """Name and memory of the card; nothing on a CPU."""
        import torch

        if not device.startswith("cuda"):
            return {}
        properties = torch.cuda.get_device_properties(0)
        return {"gpu": properties.name, "gpu_memory_gib": round(properties.total_memory / 2**30, 1)}

    def close(self) -> None:
        """Has nothing to give back."""


def default_models() -> Path:
    """A folder in memory where the system has one."""
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / "workings_models"


def names_in(text: str) -> list[str]:
    """What stands between the commas."""
    return [name for name in text.split(",") if name]


def refuse_unknown(
    parser: argparse.ArgumentParser, kind: str, asked: list[str], known: Mapping[str, Any]
) -> None:
    """Ends the process with a message where a name is not among those that are known."""
    unknown = [name for name in asked if name not in known]
    if unknown:
        parser.error(f"unknown {kind} {', '.join(unknown)}; there are {', '.join(known)}")


def override(text: str) -> tuple[str, Any]:
    """A key with its value, which is JSON where it reads as JSON.

    >>> override("batch.microbatch_tokens=16384"), override("batch.layout=packed")
    (('batch.microbatch_tokens', 16384), ('batch.layout', 'packed'))
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value
