"""`run.log`: what the loggers below `workings` say, and a line per logged step, written live."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from workings.tracking.lines import KEY_METRICS, evaluation_lines, select_metrics

FILE_NAME = "run.log"
LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PACKAGE_LOGGER = "workings"
_metrics_logger = logging.getLogger("workings.tracking.metrics")


class LogFile:
    """A logging handler on the `workings` loggers, for as long as the run lasts.

    Lines of level INFO and above land in the file with time, level and logger name, so
    `logging.getLogger(__name__).info(...)` anywhere in the package is enough.
    """

    def __init__(self, path: Path, *, logging_steps: int = 1) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._logging_steps = logging_steps
        self._handler = logging.FileHandler(path, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter(LINE_FORMAT))
        attach(self._handler)

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Write a line for the row, every `logging_steps` where it is a training step."""
        if kind == "train" and step % self._logging_steps:
            return
        if kind == "eval":
            texts = [f"evaluation at step {step}: {line}" for line in evaluation_lines(metrics)]
        else:
            names = KEY_METRICS if kind == "train" else tuple(metrics)
            texts = [f"{kind} step {step}: {select_metrics(metrics, names)}"]
        for text in texts:
            self._handler.handle(
                _metrics_logger.makeRecord(
                    _metrics_logger.name, logging.INFO, __file__, 0, text, (), None
                )
            )

    def truncate_after(self, step: int) -> None:
        """Keep the file whole: a log tells what happened, the abandoned steps included."""

    def close(self, *, failed: bool = False) -> None:
        """Take the handler off the loggers and close the file."""
        detach(self._handler)


def attach(handler: logging.Handler) -> None:
    """Put `handler` on the `workings` logger, which lets INFO through from now on."""
    logger = logging.getLogger(PACKAGE_LOGGER)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)


def detach(handler: logging.Handler) -> None:
    """Take `handler` off the `workings` logger and close it."""
    logging.getLogger(PACKAGE_LOGGER).removeHandler(handler)
    handler.close()
