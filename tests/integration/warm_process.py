"""Processes that have imported everything when they begin: forks of one that did only that.

A fresh interpreter imports torch and transformers for longer than these tests train. The process
that forks has run nothing, so each of its children is as new as one that was started by itself.

    python warm_process.py MODULE...    reads jobs from stdin, answers exit codes on stdout
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
LATE = (
    *("workings.cli.runs", "workings.cli.grpo_runs", "workings.cli.expert_runs"),
    *("workings.cli.preference_runs", "workings.cli.commands.eval", "workings.config.compose"),
    *("hydra", "pandas", "pyarrow.parquet", "accelerate", "peft", "torch._dynamo"),
    *("transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto"),
)
"""What commands import only when they run."""


class Ended(NamedTuple):
    """How a process ended: a negative code is the signal that killed it, as in `subprocess`."""

    returncode: int
    output: str
    """Of stdout and stderr."""


class WarmProcess:
    """Runs `MODULE.run(arguments)` in a process of its own, for modules that it imports once."""

    def __init__(self, *modules: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )

    def run(self, module: str, arguments: Sequence[str], *, output: Path) -> Ended:
        """How `module.run(arguments)` ended; what it said stands in the file `output` too."""
        job = {"module": module, "arguments": list(arguments), "output": str(output)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        return Ended(int(answer), output.read_text(encoding="utf-8"))

    def close(self) -> None:
        """End the process and what it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def _answer_jobs(modules: Sequence[str]) -> None:
    sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]
    loaded = {name: importlib.import_module(name) for name in modules}
    for name in LATE:
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(job["output"])
            sys.exit(loaded[job["module"]].run(job["arguments"]))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(output: str) -> None:
    """Give this process outputs of its own, no input, and what a terminal's process does at ^C."""
    target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    _answer_jobs(sys.argv[1:])
