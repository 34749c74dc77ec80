"""What a person sees: data on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from workings.cli.terminal_text import for_terminal

if TYPE_CHECKING:
    from rich.console import Console

TRACEBACK_VARIABLE = "WORKINGS_TRACEBACK"


def stderr_console() -> Console:
    """A rich console on stderr, without colour where stderr is no terminal."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def write_data(text: str) -> None:
    """Write `text` to stdout, ended by one newline."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def write_note(text: str) -> None:
    """Write one line that a person should know to stderr."""
    sys.stderr.write(f"note: {for_terminal(text)}\n")


def write_error(error: Exception | str) -> None:
    """Write `error: ...`, and below it the error's hint, to stderr.

    With WORKINGS_TRACEBACK=1 the traceback comes first.
    """
    if isinstance(error, Exception) and os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
        traceback.print_exception(error)
    sys.stderr.write(f"error: {for_terminal(str(error))}\n")
