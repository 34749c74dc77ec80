"""`workings expert-iteration`."""

from __future__ import annotations

from workings.cli.console import write_data
from workings.cli.expert_runs import run_expert_iteration
from workings.config.expert_iteration import ExpertIterationConfig


def run(config: ExpertIterationConfig, *, resume: str | None) -> int:
    """Train; the folder of the final model goes to stdout."""
    _, final = run_expert_iteration(config, resume=resume)
    write_data(str(final))
    return 0
