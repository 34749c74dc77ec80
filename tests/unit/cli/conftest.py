"""Runs of the tiny model through the real commands, made once and looked at by many tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny import save_tiny
from workings.cli.main import main

SUMS = "operations: ['+'], terms: 2, operands: [1, 30]"
TASK = f"{{path: arithmetic, split: train, options: {{num_problems: 40, {SUMS}}}}}"
VALIDATION = f"{{path: arithmetic, split: validation, options: {{num_problems: 12, {SUMS}}}}}"
LORA = "model.lora={rank: 4, alpha: 8, dropout: 0.1, targets: [q_proj, v_proj]}"


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


def run_arguments(kind: str, model: Path, output: Path, *more: str) -> list[str]:
    """A short run of the tiny model on sums."""
    return [
        kind,
        *("-c", kind, f"output_dir={output}", "seed=3", "tracking.console=false"),
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        *(f"data.train={TASK}", "data.template=think", "data.max_prompt_length=null"),
        *more,
    ]


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


def grpo_arguments(model: Path, output: Path, *more: str) -> list[str]:
    """A GRPO run with a length term, because a random model's answers are never right.

    It is validated with sampling, so that the seeds of samples matter as well.
    """
    return run_arguments(
        "grpo",
        model,
        output,
        *(f"data.validation={VALIDATION}", "data.validation_fraction=0"),
        *("reward.overlong_buffer=9", "max_steps=2"),
        "sampling={temperature: 1.0, max_tokens: 10, stop: [a, e, '3', '7', x, '+']}",
        *("prompts_per_step=4", "num_generations=4"),
        "optimizer={learning_rate: 0.02}",
        "checkpoint={every_steps: 1, save_total_limit: 5}",
        "evaluation={every_steps: 1, limit: 8, num_samples: 2, "
        "sampling: {temperature: 0.8, max_tokens: 12}}",
        *more,
    )


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
