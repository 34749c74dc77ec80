"""The exception tree. Catch `WorkingsError` to catch everything this package raises on purpose.

    WorkingsError
    ├── ConfigError            a setting is unknown, contradicts another, or cannot work here
    ├── DataError              a file, column, row or gold answer is not usable
    │   ├── Forbidden          a path leads out of the folder that may be looked at
    │   └── NotFound           nothing is at a path
    ├── TemplateError          a prompt template or chat template cannot render what it was given
    ├── ModelError             a model folder, adapter or tokenizer is not usable
    ├── EngineError            sampling failed, or the engine does not support what was asked
    │   └── EngineMemoryError  an engine's memory is too little: on the card, or in its cache
    ├── GradingError           the grader itself is broken (never raised because of model output)
    ├── TrainingError          a run cannot go on: non-finite steps, a size that cannot fit
    │   ├── AlreadyFinished    the run that was to be resumed has nothing left to do
    │   └── StoppedBySignal    Ctrl-C or SIGTERM: the step was finished and saved
    └── CheckpointError        a checkpoint is damaged, incomplete or from another kind of run

Every message says what came, what was expected and what to do. `hint` holds the last part, which
the command line prints on a line of its own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_ON_THE_CARD = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|No available memory for the cache blocks|NCCL.*out of memory",
    re.IGNORECASE,
)
_IN_THE_MACHINE = re.compile(
    r"DefaultCPUAllocator: (can't|not enough)|bad_alloc|bad allocation|[Cc]annot allocate memory"
    r"|cudaHostAlloc"
)


class WorkingsError(Exception):
    """Base of every error that this package raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nhint: {self.hint}"


class ConfigError(WorkingsError):
    """A setting is unknown, contradicts another, or cannot work on this machine."""


class DataError(WorkingsError):
    """A file, column, row or gold answer is not usable."""


class Forbidden(DataError):
    """A path leads out of the folder that may be looked at, by `..`, from the root or by a link."""


class NotFound(DataError):
    """Nothing of the kind that was asked for is at a path."""


class TemplateError(WorkingsError):
    """A prompt or chat template is unknown or cannot render what it was given."""


class ModelError(WorkingsError):
    """A model folder, adapter or tokenizer is not usable."""


class EngineError(WorkingsError):
    """Sampling failed, or the engine does not support what was asked of it."""


class EngineMemoryError(EngineError):
    """An engine has too little memory: for its cache, in its cache, or in its own process."""


class GradingError(WorkingsError):
    """The grader itself is broken. Model output never raises; it gets a verdict."""


class TrainingError(WorkingsError):
    """A run cannot go on."""


class AlreadyFinished(TrainingError):
    """The run that was to be resumed has done all its steps; the command line exits with 3."""


class StoppedBySignal(TrainingError):
    """A run was asked to stop; its step was finished and its state saved.

    `signal_number` is the signal; the command line exits with 128 + signal_number.
    """

    def __init__(self, signal_number: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.signal_number = signal_number


class CheckpointError(WorkingsError):
    """A checkpoint is damaged, incomplete or from another kind of run."""


def is_out_of_memory(error: BaseException) -> bool:
    """True where memory of the card or of the machine ran out, whoever noticed."""
    if isinstance(error, MemoryError | EngineMemoryError):
        return True
    if type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, RuntimeError | ValueError):
        text = str(error)
        if _ON_THE_CARD.search(text) or _IN_THE_MACHINE.search(text):
            return True
    cause = error.__cause__
    return cause is not None and is_out_of_memory(cause)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence for an unknown name: what came, the nearest valid names, and all of them.

    >>> unknown_name("preset", "grop", ["grpo", "dapo"])
    "unknown preset 'grop'; did you mean 'grpo'? Known: dapo, grpo"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {guess}Known: {', '.join(names) or '(none)'}"


def said(error: BaseException) -> str:
    """What an exception says, to stand behind a colon: its text, or its kind where it has none.

    >>> said(ValueError("4 of 5")), said(AssertionError())
    ('4 of 5', 'AssertionError')
    """
    return str(error) or type(error).__name__
