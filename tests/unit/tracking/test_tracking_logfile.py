"""run.log is written live, with time, level and logger."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from workings.tracking.logfile import LogFile


def test_lines_of_any_module_land_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "run.log"
    sink = LogFile(path)
    logging.getLogger("workings.training.grpo").info("weights loaded into %s", "paged")
    logging.getLogger("workings.rewards").warning("three timeouts")
    logging.getLogger("workings.rewards").debug("not this")
    logging.getLogger("elsewhere").warning("nor this")
    lines = path.read_text().splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert len(lines) == 2
    assert re.fullmatch(stamp + " INFO workings.training.grpo: weights loaded into paged", lines[0])
    assert re.fullmatch(stamp + " WARNING workings.rewards: three timeouts", lines[1])
    sink.close()


def test_nothing_lands_after_close(tmp_path: Path) -> None:
    sink = LogFile(tmp_path / "run.log")
    sink.close()
    logging.getLogger("workings.training").warning("too late")
    assert (tmp_path / "run.log").read_text() == ""


def test_training_rows_every_logging_steps_and_evaluations_always(tmp_path: Path) -> None:
    sink = LogFile(tmp_path / "run.log", logging_steps=5)
    for step in range(1, 11):
        sink.record(step, "train", {"train/loss": 0.5, "train/reward": 0.25}, time=0.0)
    sink.record(7, "eval", {"eval/sums/accuracy": 0.5}, time=0.0)
    sink.record(10, "final", {"final/accuracy": 0.75}, time=0.0)
    sink.close()
    messages = [line.split(": ", 1)[1] for line in (tmp_path / "run.log").read_text().splitlines()]
    assert messages == [
        "train step 5: reward 0.25  loss 0.5",
        "train step 10: reward 0.25  loss 0.5",
        "evaluation at step 7: sums: accuracy 50.0 %",
        "final step 10: accuracy 0.75",
    ]


def test_a_resumed_run_appends(tmp_path: Path) -> None:
    for text in ("first", "second"):
        sink = LogFile(tmp_path / "run.log")
        sink.truncate_after(0)
        logging.getLogger("workings.run").info(text)
        sink.close()
    assert (tmp_path / "run.log").read_text().count("\n") == 2


def test_log_lines_do_not_reach_stdout(tmp_path: Path, capsys) -> None:
    sink = LogFile(tmp_path / "run.log")
    logging.getLogger("workings.training").warning("to the file only")
    sink.close()
    assert capsys.readouterr().out == ""
