"""Settings of runs on the tiny model: seconds on a CPU, through the real commands.

The tiny model is random, so its answers are never right; its GRPO reward is DAPO's length term,
which it can learn (stop early), and which differs within every group.
"""

from __future__ import annotations

import json
from pathlib import Path

ARITHMETIC = "{num_problems: 24, terms: 2, operands: [1, 99]}"


def grpo_arguments(model: Path, output: Path, *more: str, name: str = "grpo") -> list[str]:
    """`workings grpo` with six small steps; three of them make an epoch."""
    return [
        *_common("grpo", model, output, name),
        f"data.train={{path: arithmetic, options: {ARITHMETIC}}}",
        "data.validation={path: arithmetic, split: validation, "
        "options: {num_problems: 6, terms: 2, operands: [1, 99]}}",
        "reward.overlong_buffer=9",
        "sampling={temperature: 1.0, max_tokens: 10, stop: [a, e, '3', '7', x, '+']}",
        "prompts_per_step=8",
        "num_generations=4",
        "train_batch_size=16",
        "max_steps=6",
        "batch.microbatch_rows=4",
        "optimizer={learning_rate: 0.01, schedule: linear, warmup_steps: 2}",
        "checkpoint={every_steps: 2, save_total_limit: 3}",
        "evaluation={every_steps: 3, at_start: false, sampling: {max_tokens: 10}}",
        *more,
    ]


def one_step_off_arguments(model: Path, output: Path, *more: str, name: str = "ahead") -> list[str]:
    """The same with the next batch sampled during training, by a process of its own."""
    ahead = ("schedule=one_step_off", "engine.own_process=true")
    return grpo_arguments(model, output, *ahead, *more, name=name)


def sft_arguments(model: Path, output: Path, *more: str, name: str = "sft") -> list[str]:
    """`workings sft` with nine steps of eight rows; three of them make an epoch."""
    return [
        *_common("sft", model, output, name),
        f"data.train={{path: arithmetic, options: {ARITHMETIC}}}",
        "data.validation={path: arithmetic, split: validation, "
        "options: {num_problems: 6, terms: 2, operands: [1, 99]}}",
        "batch_size=8",
        "epochs=3",
        "batch.microbatch_rows=2",
        "optimizer={learning_rate: 0.01, schedule: cosine, warmup_steps: 2, warmup_ratio: 0}",
        "checkpoint={every_steps: 2, save_total_limit: 3}",
        "evaluation={every_steps: 3, at_start: false, sampling: {max_tokens: 10}}",
        *more,
    ]


def dpo_arguments(model: Path, output: Path, *more: str, name: str = "dpo") -> list[str]:
    """`workings dpo` with nine steps of eight pairs; three of them make an epoch."""
    pairs = model.parent / "pairs.jsonl"
    rows = [
        {"prompt": f"{n}+{n}?", "chosen": f"hello {2 * n}", "rejected": f"NO {'X' * (n % 7)}"}
        for n in range(30)
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [
        *_common("dpo", model, output, name),
        f"data.train.path={pairs}",
        "data.validation_fraction=0",
        "validation_pairs=6",
        "batch_size=8",
        "epochs=3",
        "batch.microbatch_rows=4",
        "optimizer={learning_rate: 0.01, schedule: cosine, warmup_steps: 2, warmup_ratio: 0}",
        "checkpoint={every_steps: 2, save_total_limit: 3}",
        "evaluation={every_steps: 3, at_start: false}",
        *more,
    ]


def expert_arguments(model: Path, output: Path, *more: str, name: str = "expert") -> list[str]:
    """`workings expert-iteration` with three small rounds; a sample is right if it stops early."""
    return [
        *_common("expert-iteration", model, output, name),
        f"data.train={{path: arithmetic, options: {ARITHMETIC}}}",
        "data.validation={path: arithmetic, split: validation, "
        "options: {num_problems: 6, terms: 2, operands: [1, 99]}}",
        "reward.overlong_buffer=9",
        "keep_above=-0.5",
        "sampling={temperature: 1.0, max_tokens: 10, min_tokens: 1, "
        "stop: [a, e, '3', '7', x, '+']}",
        "iterations=3",
        "questions_per_iteration=8",
        "num_generations=4",
        "epochs=2",
        "batch_size=5",
        "batch.microbatch_rows=2",
        "optimizer={learning_rate: 0.01, schedule: linear, warmup_steps: 2}",
        "checkpoint={every_steps: 2, save_total_limit: 4}",
        "evaluation={at_start: false, sampling: {max_tokens: 10}}",
        *more,
    ]


LORA = "model.lora={rank: 4, alpha: 8, dropout: 0.1, targets: [q_proj, v_proj, down_proj]}"


def _common(kind: str, model: Path, output: Path, name: str) -> list[str]:
    return [
        kind,
        "-c",
        kind,
        f"name={name}",
        f"output_dir={output}",
        "seed=7",
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        *([] if kind == "dpo" else ["~data"]),  # its file names no data
        "data.template=think",
        "data.max_prompt_length=null",
        "tracking.console=false",
    ]
