"""`workings grpo`."""

from __future__ import annotations

from workings.cli.console import write_data
from workings.cli.grpo_runs import run_grpo
from workings.config.grpo import GRPOConfig


def run(config: GRPOConfig, *, resume: str | None) -> int:
    """Train; the folder of the final model goes to stdout."""
    _, final = run_grpo(config, resume=resume)
    write_data(str(final))
    return 0
