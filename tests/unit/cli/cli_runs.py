"""Settings of short runs of the tiny model, for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

SUMS = "operations: ['+'], terms: 2, operands: [1, 30]"
TASK = f"{{path: arithmetic, split: train, options: {{num_problems: 40, {SUMS}}}}}"
VALIDATION = f"{{path: arithmetic, split: validation, options: {{num_problems: 12, {SUMS}}}}}"
LORA = "model.lora={rank: 4, alpha: 8, dropout: 0.1, targets: [q_proj, v_proj]}"


def run_arguments(kind: str, model: Path, output: Path, *more: str) -> list[str]:
    """A short run of the tiny model on sums."""
    return [
        kind,
        *("-c", kind, f"output_dir={output}", "seed=3", "tracking.console=false"),
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        *(f"data.train={TASK}", "data.template=think", "data.max_prompt_length=null"),
        *more,
    ]


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
