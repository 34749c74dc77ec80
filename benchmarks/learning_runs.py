"""One run of benchmarks/learning.py: train from its start, then measure what came out."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from typing import Any

import torch
from learning_samples import right_samples, sampled_groups, write_pairs
from learning_tasks import (
    METHODS,
    OUTCOME,
    Task,
    measuring_settings,
    pairs_file,
    resulting_model,
    run_settings,
    test_problems,
)

from workings.cli.build import set_threads
from workings.cli.expert_runs import run_expert_iteration
from workings.cli.folders import CONFIG, run_folder
from workings.cli.grpo_runs import run_grpo
from workings.cli.preference_runs import run_dpo
from workings.cli.runs import run_sft
from workings.cli.stages import measure_stage
from workings.errors import AlreadyFinished
from workings.tracking.environment import environment_report


def run_task(task: Task) -> dict[str, Any]:
    """The outcome of the run, which is read where it has finished before."""
    done = task.outcome()
    if done is not None:
        return done
    set_threads(task.num_threads)
    took = train(task)
    stage = measure_stage(
        measuring_settings(task), test_problems(task), task.method, resulting_model(task)
    )
    outcome = {
        "method": task.method,
        "seed": task.seed,
        "accuracy": stage.accuracy.value,
        "low": stage.accuracy.low,
        "high": stage.accuracy.high,
        "num_problems": stage.accuracy.num_problems,
        "sampled": right_samples(sampled_groups(task)) if METHODS[task.method].sampled else None,
        "seconds": took[0] if took else None,
        "processor_seconds": took[1] if took else None,
        "device": device_name(task.device),
        "num_threads": task.num_threads,
        "environment": environment_report(),
    }
    (task.folder / OUTCOME).write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(task.folder / "checkpoints", ignore_errors=True)  # 1.6 GB, and of no more use
    return outcome


def train(task: Task) -> tuple[float, float] | None:
    """Run the task's training, or go on with it where it was stopped.

    Returns the seconds it took, and those of the processor over all threads, loading the model and
    sampling DPO's pairs included; None where it went on, since it would be the time of a part.
    """
    started = time.perf_counter(), time.process_time()
    config = run_settings(task)
    begun_before = (run_folder(config) / CONFIG).is_file()
    if config.kind == "dpo":
        begun_before |= pairs_file(task).is_file()
        if not pairs_file(task).is_file():
            write_pairs(task)
    run(config)
    if begun_before:
        return None
    return time.perf_counter() - started[0], time.process_time() - started[1]


def run(config: Any) -> None:
    """The command of a run, from its last checkpoint where there is one."""
    resume = "latest" if (run_folder(config) / CONFIG).is_file() else None
    with suppress(AlreadyFinished):
        match config.kind:
            case "sft":
                run_sft(config, resume=resume)
            case "grpo":
                run_grpo(config, resume=resume)
            case "expert-iteration":
                run_expert_iteration(config, resume=resume)
            case "dpo":
                run_dpo(config, resume=resume)


def device_name(device: str) -> str:
    """The card's own name, or the device as it was given."""
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return torch.cuda.get_device_name() if on_gpu else "cpu"
