"""`workings quickstart`: a real model learns arithmetic on this machine, and shows its workings."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workings.cli.console import write_data
from workings.cli.folders import run_folder
from workings.cli.stages import PipelineResult, run_pipeline, stage_folder
from workings.cli.terminal_text import for_terminal
from workings.config.pipeline import PipelineConfig
from workings.errors import ConfigError
from workings.evaluation.metrics import PairedDifference
from workings.evaluation.plots import plot_quickstart
from workings.evaluation.reports import read_results
from workings.evaluation.tables import format_difference, stages_table
from workings.tracking.environment import environment_report

SUMMARY = "quickstart.json"


def run(config: PipelineConfig, *, resume: str | None, fresh: bool) -> int:
    """Run the pipeline, print the table, draw the plot, and say where to look next."""
    folder = _folder(config)
    if fresh and folder.exists():
        shutil.rmtree(folder)
    if resume is None and folder.exists():
        raise ConfigError(
            f"{folder} exists from an earlier quickstart",
            hint="--resume goes on with it, --fresh begins again",
        )
    started = time.perf_counter()
    result = run_pipeline(config, resume=resume)
    summary = summarise(config, result, seconds=time.perf_counter() - started)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    plots = plot_quickstart(
        {stage.name: stage.accuracy for stage in result.stages},
        run_folder(config.grpo) / "metrics.jsonl",
        folder / "plots" / "quickstart.png",
        validation_metric="eval/accuracy" if config.grpo.evaluation.every_steps else None,
        title="SmolLM2-135M learns to add" if _is_default(config) else None,
        settings={"model": config.sft.model.name_or_path, "seed": config.grpo.seed},
    )
    write_data(report(config, result, folder, plots))
    return 0


def summarise(config: PipelineConfig, result: PipelineResult, *, seconds: float) -> dict[str, Any]:
    """The numbers of a quickstart, ready for JSON."""

    def difference(value: PairedDifference | None) -> dict[str, Any] | None:
        return None if value is None else asdict(value)

    return {
        "model": config.sft.model.name_or_path,
        "seed": config.grpo.seed,
        "seconds": seconds,
        "stages": [asdict(stage) for stage in result.stages],
        "grpo_over_sft": difference(result.gain),
        "grpo_over_control": difference(result.over_control),
        "environment": environment_report(),
    }


def report(config: PipelineConfig, result: PipelineResult, folder: Path, plots: list[Path]) -> str:
    """What the person reads at the end."""
    lines = ["", stages_table(result.stages), ""]
    if result.gain is not None:
        lines.append(f"GRPO over SFT:          {format_difference(result.gain)}")
    if result.over_control is not None:
        lines.append(f"GRPO over more SFT:     {format_difference(result.over_control)}")
    lines += ["", *example(config), "", f"plot:        {plots[0]}", f"the run:     {folder}"]
    lines += [
        f"next:        workings inspect rollouts {folder / 'grpo'}",
        f'             workings sample {result.final} "{_question(config)}" --template '
        f"{config.grpo.data.template}",
    ]
    return "\n".join(lines)


def example(config: PipelineConfig) -> list[str]:
    """One held-out problem that SFT got wrong and GRPO right, as the model wrote it."""
    assert config.test is not None
    name = config.test.name or Path(config.test.path).stem
    before, after = (
        {row["id"]: row for row in read_results(stage_folder(config.grpo, stage) / name)}
        for stage in ("SFT", "GRPO")
    )
    for key, row in after.items():
        if row["correct"] and not before[key]["correct"]:
            prompt = row["prompt"].rstrip("\n")
            return [
                f"one problem that became right (answer {row['ground_truth']}):",
                *_indented("SFT ", prompt + before[key]["response"]),
                *_indented("GRPO", prompt + row["response"]),
            ]
    return []


def _indented(label: str, text: str) -> list[str]:
    first, *rest = for_terminal(text).splitlines()
    return [f"  {label}  {first}", *(f"        {line}" for line in rest)]


def _question(config: PipelineConfig) -> str:
    assert config.test is not None
    name = config.test.name or Path(config.test.path).stem
    row = read_results(stage_folder(config.grpo, "GRPO") / name)[0]
    return str(row["prompt"]).splitlines()[0]


def _folder(config: PipelineConfig) -> Path:
    return run_folder(config.grpo).parent


def _is_default(config: PipelineConfig) -> bool:
    return config.sft.model.name_or_path == "smollm2"
