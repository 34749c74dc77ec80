"""`workings sft`."""

from __future__ import annotations

from workings.cli.console import write_data
from workings.cli.runs import run_sft
from workings.config.sft import SFTConfig


def run(config: SFTConfig, *, resume: str | None) -> int:
    """Train; the folder of the final model goes to stdout."""
    _, final = run_sft(config, resume=resume)
    write_data(str(final))
    return 0
