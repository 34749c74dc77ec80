"""The handle of a batch that was sampled when it was submitted."""

from __future__ import annotations

from dataclasses import dataclass

from workings.types import Sample


@dataclass(frozen=True, slots=True)
class Finished:
    """Samples, one list per request."""

    samples: list[list[Sample]]

    def ready(self) -> bool:
        """True: there is nothing to wait for."""
        return True
