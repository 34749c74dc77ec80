"""What every engine raises in the same words. Imports no torch."""

from __future__ import annotations

from workings.errors import EngineError


def closed() -> EngineError:
    """For any use of an engine after `close`."""
    return EngineError("the engine is closed", hint="make a new one")


def asleep() -> EngineError:
    """For sampling between `sleep` and `wake`."""
    return EngineError("the engine is asleep", hint="call wake() before sampling")


def mixed_weights() -> EngineError:
    """For sampling after a `load_weights` that failed."""
    return EngineError(
        "the last load_weights failed halfway, so the weights are a mixture",
        hint="load a whole set of weights first",
    )


def broken_logits() -> EngineError:
    """For logits that are NaN or infinite."""
    return EngineError(
        "the model gave logits that are not finite (NaN or infinity), so there is nothing to "
        "sample from",
        hint="the weights are broken; look for the first non-finite step of training",
    )
