"""Run `workings` in this process, and kill it or send it a signal at a chosen moment.

run(["forward", "7", "grpo", "-c", "grpo", ...])    at the 7th forward pass of training
     sample 3      at the 3rd batch that is sampled
     collect 4     at the 4th batch that is waited for (engine in its own process)
     saved 2       right after the 2nd checkpoint is written
     saving 2      while the 2nd checkpoint is being written
     SIGINT 3      while the 3rd batch is graded, with that signal in the place of SIGKILL
"""

from __future__ import annotations

import os
import signal

from workings.cli.main import main
from workings.rollout.process_engine import ProcessEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.training import checkpointer, draw, step


def killing(function, at, *, after=False, number=signal.SIGKILL):
    """`function` that signals this process at its `at`-th call, before or after doing its work."""
    calls = 0

    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == at and not after:
            os.kill(os.getpid(), number)
        result = function(*args, **kwargs)
        if calls == at and after:
            os.kill(os.getpid(), number)
        return result

    return wrapper


def run(arguments):
    """The exit code of the command, where it was not killed."""
    moment, at = arguments[0], int(arguments[1])
    if moment == "forward":
        step.response_scores = killing(step.response_scores, at)
    elif moment == "sample":
        TransformersEngine.submit = killing(TransformersEngine.submit, at)
    elif moment == "collect":
        ProcessEngine.collect = killing(ProcessEngine.collect, at)
    elif moment == "saved":
        checkpointer.Checkpointer.save = killing(checkpointer.Checkpointer.save, at, after=True)
    elif moment == "saving":
        checkpointer.save_tensors = killing(checkpointer.save_tensors, at)
    else:
        draw.grade_groups = killing(draw.grade_groups, at, number=signal.Signals[moment])
    return main(arguments[2:])
