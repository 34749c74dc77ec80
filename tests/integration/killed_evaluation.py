"""Run `workings eval` in this process and kill it with SIGKILL at a chosen moment.

run(["sample", "3", "eval", "-c", "eval", ...])    when the 3rd part is about to be sampled
     stored 2      right after the 2nd part is stored
     storing 2     with the 2nd part half written
     grade 1       when all responses are there, ungraded
"""

from __future__ import annotations

import os
import signal

from killed_run import killing

from workings.cli.main import main
from workings.evaluation import evaluate, responses
from workings.rollout.transformers_engine import TransformersEngine

_write_groups = responses.write_groups


def half_written(path, groups):
    """A file beside `path` with the first half of what belongs there, and no process to go on."""
    _write_groups(path, groups)
    content = path.read_bytes()
    path.unlink()
    path.with_name(path.name + ".new").write_bytes(content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def storing(at):
    """`write_groups` that is cut in its `at`-th call."""
    calls = 0

    def wrapper(path, groups):
        nonlocal calls
        calls += 1
        (half_written if calls == at else _write_groups)(path, groups)

    return wrapper


def run(arguments):
    """The exit code of the command, where it was not killed."""
    moment, at = arguments[0], int(arguments[1])
    if moment == "sample":
        TransformersEngine.submit = killing(TransformersEngine.submit, at)
    elif moment == "stored":
        store = responses.ResponseStore
        store.write = killing(store.write, at, after=True)
    elif moment == "storing":
        responses.write_groups = storing(at)
    elif moment == "grade":
        evaluate.grade_groups = killing(evaluate.grade_groups, at)
    return main(arguments[2:])
