"""`workings pipeline`: SFT, then GRPO from its result."""

from __future__ import annotations

from workings.cli.console import write_data, write_note
from workings.cli.stages import run_pipeline
from workings.config.pipeline import PipelineConfig
from workings.evaluation.tables import format_difference, stages_table


def run(config: PipelineConfig, *, resume: str | None) -> int:
    """Run both phases, or the one that is not skipped; the final model's folder goes to stdout."""
    result = run_pipeline(config, resume=resume)
    if result.stages:
        write_data(stages_table(result.stages))
    if result.gain is not None:
        write_data(f"GRPO over SFT: {format_difference(result.gain)}")
    if result.over_control is not None:
        write_data(f"GRPO over the control: {format_difference(result.over_control)}")
    write_note(f"the final model is in {result.final}")
    write_data(str(result.final))
    return 0
