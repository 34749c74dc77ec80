"""Runs of the tiny model through the real commands, made once and looked at by many tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import LORA, grpo_arguments, run_arguments

from tiny import save_tiny
from workings.cli.main import main


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def sft_run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SFT run that has begun to learn the format; its validation rows are held out."""
    output = tmp_path_factory.mktemp("sft")
    arguments = run_arguments(
        "sft",
        tiny_folder,
        output,
        *("name=s", "data.validation_fraction=0.25", "data.max_response_length=null"),
        *("reward=r1_zero", "batch_size=16", "max_steps=20"),
        "optimizer={learning_rate: 0.02, schedule: constant, warmup_ratio: 0.0}",
        "checkpoint={every_steps: 10, save_total_limit: 5}",
        "evaluation={every_steps: 10, at_start: false, limit: 7, sampling: {max_tokens: 40}}",
    )
    assert main(arguments) == 0
    return output / "s"


@pytest.fixture(scope="session")
def grpo_run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GRPO run of two steps."""
    output = tmp_path_factory.mktemp("grpo")
    assert main(grpo_arguments(tiny_folder, output, "name=g")) == 0
    return output / "g"


@pytest.fixture(scope="session")
def lora_run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with adapters."""
    output = tmp_path_factory.mktemp("lora")
    assert main(grpo_arguments(tiny_folder, output, "name=l", LORA)) == 0
    return output / "l"


@pytest.fixture
def summary_of() -> Callable[[Path], dict[str, Any]]:
    """`summary.json` of a folder without what may differ: settings and wall-clock time."""

    def read(folder: Path) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        del summary["settings"], summary["seconds"]
        return summary

    return read
