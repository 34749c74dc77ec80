"""`workings inspect prompts`: what the model is asked, token by token, and the faults in it."""

from __future__ import annotations

from workings.cli.commands import inspect_data
from workings.config.kinds import AnyRun


def run(config: AnyRun, *, limit: int) -> int:
    """Print the first `limit` prompts of any kind of run; 1 where rows or template have a fault.

    Of demonstrations and pairs the prompt alone is shown; their responses are checked too.
    """
    return inspect_data.run(config, limit=limit, only_prompts=True)
