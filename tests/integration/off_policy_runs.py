"""Settings of runs with a teacher's traces or a replay, on the tiny model and a file of their own.

The file is in LUFFY's schema: ten problems with a trace, two without. The tiny model never answers
right, so what it learns from are the traces.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workings.data.luffy_files import write_luffy_parquet
from workings.types import Demonstration, Problem

NUM_PROBLEMS, NUM_TRACES = 12, 10


def write_traces(
    path: Path,
    *,
    say: Callable[[str], str] | None = None,
    probabilities: Callable[[str], list[float]] | None = None,
    extra: dict[str, object] | None = None,
) -> Path:
    """The file; `say` maps a gold answer to its trace, right and in the think format by default."""
    say = say or (lambda answer: f"<think>\nadd </think> <answer>{answer}</answer>")
    problems = [
        Problem(id=f"p/{n}", question=f"{n}+1?", answer=str(n + 1)) for n in range(NUM_PROBLEMS)
    ]
    traces = {}
    for problem in problems[:NUM_TRACES]:
        text = say(problem.answer)
        columns: dict[str, object] = dict(extra or {})
        if probabilities is not None:
            columns["target_ds_qwen_7b_probs"] = probabilities(text)
        traces[problem.id] = [
            Demonstration(
                id=f"{problem.id}/t",
                question=problem.question,
                response=text,
                answer=problem.answer,
                extra=columns,
            )
        ]
    write_luffy_parquet(path, problems, traces)
    return path


def off_policy_arguments(
    model: Path, data: Path, output: Path, *more: str, name: str = "run"
) -> list[str]:
    """`workings grpo` with four steps of six prompts and two updates each."""
    return [
        "grpo",
        "-c",
        "grpo",
        f"name={name}",
        f"output_dir={output}",
        "seed=7",
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        "~data",
        f"data.train.path={data}",
        "data.template=think",
        "data.max_prompt_length=null",
        "tracking.console=false",
        "sampling={temperature: 1.0, max_tokens: 40, stop: [a, e, '3', '7', x, '+']}",
        "prompts_per_step=6",
        "num_generations=4",
        "train_batch_size=12",
        "max_steps=4",
        "batch.microbatch_rows=5",
        "optimizer={learning_rate: 0.01, schedule: linear, warmup_steps: 2}",
        "checkpoint={every_steps: 1, save_total_limit: 9}",
        "evaluation={every_steps: 0, at_start: false, at_end: false}",
        *more,
    ]
