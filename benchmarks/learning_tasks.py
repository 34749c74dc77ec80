"""What benchmarks/learning.py runs: the methods, one task for each seed, and their settings.

Settings are in benchmarks/learning/METHOD.yaml, each a whole run of its own. What this file adds
is where the run begins, its seed and device, and for DPO the file of its pairs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workings.cli.stages import stage_folder, started_from
from workings.config.compose import compose
from workings.config.grpo import GRPOConfig
from workings.config.sections import DatasetConfig, ModelConfig

Kind = Literal["sft", "grpo", "expert-iteration", "dpo"]
SETTINGS = Path(__file__).parent / "learning"
OUTCOME = "outcome.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What a method is.

    Attributes:
        kind: of its run.
        start: the method whose result it starts from.
        sampled: whether it is also measured how many of its samples are right.
    """

    kind: Kind
    start: str | None = None
    sampled: bool = False


METHODS = {
    "start": Method(kind="sft"),
    "short_sums": Method(kind="sft", sampled=True),
    "dapo": Method(kind="grpo", start="start"),
    "gspo": Method(kind="grpo", start="start"),
    "cispo": Method(kind="grpo", start="start"),
    "dr_grpo": Method(kind="grpo", start="start"),
    "expert_iteration": Method(kind="expert-iteration", start="start"),
    "dpo": Method(kind="dpo", start="start"),
    "luffy": Method(kind="grpo", start="short_sums"),
    "on_policy_noclip": Method(kind="grpo", start="short_sums"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run: a method from one seed.

    Attributes:
        out: folder of all runs of the benchmark.
        num_threads: CPU threads, so that runs beside each other share the cores.
        smoke: two problems and one step, to see that everything fits together.
    """

    method: str
    seed: int
    out: Path
    device: str
    num_threads: int = 0
    smoke: bool = False

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        return self.out / f"seed_{self.seed}" / self.method

    def of(self, method: str) -> Task:
        """Another method from the same seed."""
        return replace(self, method=method)

    def outcome(self) -> dict[str, Any] | None:
        """What the finished run stored; None where it has not finished."""
        path = self.folder / OUTCOME
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def run_settings(task: Task) -> Any:
    """The run of a task, from its file."""
    method = METHODS[task.method]
    overrides = common_overrides(task)
    if method.start is not None:
        overrides.append(f"model.name_or_path={task.of(method.start).folder / 'final'}")
    if method.kind == "dpo":
        overrides.append(f"data.train.path={pairs_file(task)}")
    if task.smoke:
        overrides += SMOKE[method.kind]
    return compose([str(SETTINGS / f"{task.method}.yaml")], overrides, kind=method.kind)


def measuring_settings(task: Task) -> GRPOConfig:
    """What every model is measured with, and starts are sampled with: the runs' own sampling."""
    overrides = common_overrides(task.of("rl"))
    return compose([str(SETTINGS / "rl.yaml")], overrides, kind="grpo")


def resulting_model(task: Task) -> ModelConfig:
    """The model that a finished task leaves."""
    return started_from(measuring_settings(task).model, task.folder / "final")


def common_overrides(task: Task) -> list[str]:
    """What the command line decides. Arithmetic is float32 on every device."""
    return [
        f"output_dir={task.folder.parent}",
        f"name={task.folder.name}",
        f"seed={task.seed}",
        f"num_threads={task.num_threads}",
        f"model.device={task.device}",
        "model.dtype=float32",
        "tracking.console=false",
        "checkpoint.keep_best=false",
    ]


SMOKE: dict[Kind, list[str]] = {
    "sft": ["max_steps=1", "evaluation.limit=2"],
    "grpo": [
        *("max_steps=1", "prompts_per_step=2", "num_generations=4", "train_batch_size=4"),
        "sampling.max_tokens=36",
    ],
    "expert-iteration": ["iterations=1", "questions_per_iteration=2", "num_generations=2"],
    "dpo": ["max_steps=1", "batch_size=2"],
}


def test_problems(task: Task) -> DatasetConfig:
    """The quickstart's held-out sums of four."""
    test = compose(["quickstart/pipeline"], kind="pipeline").test
    assert test is not None
    return test.model_copy(update={"limit": 2}) if task.smoke else test


def measured_folder(task: Task) -> Path:
    """Where the answers of the run's model to the held-out problems are kept."""
    test = test_problems(task)
    return stage_folder(measuring_settings(task), task.method) / (test.name or test.path)


def pairs_file(task: Task) -> Path:
    """The pairs that DPO learns from, beside its run."""
    return task.folder.parent / "pairs.jsonl"
