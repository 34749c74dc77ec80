"""`workings dpo`."""

from __future__ import annotations

from workings.cli.console import write_data
from workings.cli.preference_runs import run_dpo
from workings.config.dpo import DPOConfig


def run(config: DPOConfig, *, resume: str | None) -> int:
    """Train; the folder of the final model goes to stdout."""
    _, final = run_dpo(config, resume=resume)
    write_data(str(final))
    return 0
