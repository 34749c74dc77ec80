"""Keeps transformers from writing progress bars and advice to the terminal while it loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silences transformers' own output inside the block and restores it afterwards.

    What it would have said (missing weights, ignored settings) is checked and reported by the
    callers themselves.
    """
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Said in full when the pickle is refused.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
