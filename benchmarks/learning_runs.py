"""One run of benchmarks/learning.py: train from the start of its seed, then measure what came out.

Settings are in benchmarks/learning/METHOD.yaml, each a whole run of its own. What this file adds
is where the run begins, its seed and device, and for DPO the pairs, which the start samples itself.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from workings.cli.build import (
    build_engine,
    build_grader,
    build_policy,
    build_run_reward,
    build_sampling,
    problems_at,
    training_prompting,
)
from workings.cli.expert_runs import run_expert_iteration
from workings.cli.folders import CONFIG, run_folder
from workings.cli.grpo_runs import run_grpo
from workings.cli.preference_runs import run_dpo
from workings.cli.runs import run_sft
from workings.cli.stages import measure_stage, stage_folder, started_from
from workings.config.compose import compose
from workings.config.grpo import GRPOConfig
from workings.config.sections import DatasetConfig
from workings.errors import AlreadyFinished, DataError
from workings.evaluation.sample_metrics import is_right
from workings.rewards.reward import grade_groups
from workings.rollout.collect import collect_groups
from workings.seeds import derive_seed
from workings.tracking.environment import environment_report
from workings.types import RolloutGroup

Kind = Literal["sft", "grpo", "expert-iteration", "dpo"]
SETTINGS = Path(__file__).parent / "learning"
OUTCOME = "outcome.json"
NUM_PAIR_PROBLEMS, PAIRS_PER_PROBLEM = 160, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What a method is: the kind of its run, and the method whose result it starts from."""

    kind: Kind
    start: str | None = None


METHODS = {
    "start": Method(kind="sft"),
    "short_sums": Method(kind="sft"),
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
        return Task(
            method=method,
            seed=self.seed,
            out=self.out,
            device=self.device,
            num_threads=self.num_threads,
            smoke=self.smoke,
        )

    def outcome(self) -> dict[str, Any] | None:
        """What the finished run stored; None where it has not finished."""
        path = self.folder / OUTCOME
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def run_task(task: Task) -> dict[str, Any]:
    """The outcome of the run, which is read where it has finished before."""
    done = task.outcome()
    if done is not None:
        return done
    started = time.perf_counter()
    config = run_settings(task)
    if METHODS[task.method].kind == "dpo" and not pairs_file(task).is_file():
        write_pairs(task)
    train(config)
    seconds = time.perf_counter() - started
    measured = measuring_settings(task)
    stage = measure_stage(
        measured,
        test_problems(task),
        task.method,
        started_from(measured.model, task.folder / "final"),
    )
    outcome = {
        "method": task.method,
        "seed": task.seed,
        "accuracy": stage.accuracy.value,
        "low": stage.accuracy.low,
        "high": stage.accuracy.high,
        "num_problems": stage.accuracy.num_problems,
        "seconds": seconds,
        "device": device_name(task.device),
        "environment": environment_report(),
    }
    (task.folder / OUTCOME).write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(task.folder / "checkpoints", ignore_errors=True)  # 1.6 GB, and of no more use
    return outcome


def train(config: Any) -> None:
    """Run it, or go on with it where it was stopped."""
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


def measured_folder(task: Task) -> Path:
    """Where the answers of the run's model to the held-out problems are kept."""
    test = test_problems(task)
    return stage_folder(measuring_settings(task), task.method) / (test.name or test.path)


def test_problems(task: Task) -> DatasetConfig:
    """The quickstart's held-out sums of four."""
    test = compose(["quickstart/pipeline"], kind="pipeline").test
    assert test is not None
    return test.model_copy(update={"limit": 2}) if task.smoke else test


# ------------------------------------------------------------------------------------ settings


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
    """What every model is measured with, and the pairs of DPO are sampled with."""
    overrides = common_overrides(task.of("rl"))
    return compose([str(SETTINGS / "rl.yaml")], overrides, kind="grpo")


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


def device_name(device: str) -> str:
    """The card's own name, or the device as it was given."""
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return torch.cuda.get_device_name() if on_gpu else "cpu"


# --------------------------------------------------------------------------------------- pairs


def pairs_file(task: Task) -> Path:
    """The pairs that DPO learns from, beside its run."""
    return task.folder.parent / "pairs.jsonl"


def write_pairs(task: Task) -> None:
    """Pairs of a right and a wrong answer that the start of the seed gives to training problems."""
    rows = preference_rows(sampled_groups(task), most=PAIRS_PER_PROBLEM)
    if not rows:
        raise DataError(
            f"the start of seed {task.seed} answered no problem both rightly and wrongly",
            hint="a start between 10 and 50 % has plenty; see benchmarks/learning/start.yaml",
        )
    path = pairs_file(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    partial = path.with_suffix(".partial")
    partial.write_text(lines, encoding="utf-8")
    partial.replace(path)


def sampled_groups(task: Task) -> Sequence[RolloutGroup]:
    """Graded answers of the start, sampled as the methods on rollouts sample."""
    config = measuring_settings(task)
    start = METHODS[task.method].start
    assert start is not None
    model = started_from(config.model, task.of(start).folder / "final")
    with build_grader(config.grader) as grader:
        policy = build_policy(model, seed=config.seed, trainable=False)
        prompting = training_prompting(config.data, policy.tokenizer)
        problems = problems_at(
            config.data.train, seed=config.seed, grader=grader, bad_gold="error", log=_ignore
        ).items
        most = 8 if task.smoke else NUM_PAIR_PROBLEMS
        sampling = build_sampling(config.sampling, prompting.template)
        reward = build_run_reward(
            config.reward,
            grader,
            eos_token=policy.tokenizer.eos_token,
            max_tokens=sampling.max_tokens,
        )
        engine, _ = build_engine(config.engine, policy)
        groups = collect_groups(
            engine,
            prompting.prompts(problems[:most], _ignore, what="prompts"),
            sampling,
            num_samples=config.num_generations,
            seed=derive_seed(config.seed, "pairs"),
        )
        graded = grade_groups(groups, reward)
        engine.close()
    return graded


def preference_rows(groups: Sequence[RolloutGroup], *, most: int) -> list[dict[str, str]]:
    """Up to so many pairs of each group, no answer twice, none that was cut off at the limit.

    A cut answer is no rejected response: it would be trained to end where it was cut.
    """
    rows = []
    for group in groups:
        whole = [rollout for rollout in group.rollouts if rollout.finish_reason != "length"]
        right = dict.fromkeys(rollout.text for rollout in whole if is_right(rollout))
        wrong = dict.fromkeys(rollout.text for rollout in whole if not is_right(rollout))
        for chosen, rejected in list(zip(right, wrong, strict=False))[:most]:
            question = group.problem.question
            rows.append({"prompt": question, "chosen": chosen, "rejected": rejected})
    return rows


def _ignore(text: str) -> None:
    """The run itself says how its data were read."""
