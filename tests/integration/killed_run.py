"""Run `workings` in this process and kill it with SIGKILL at a chosen moment.

python killed_run.py forward 7 grpo -c grpo ...     at the 7th forward pass of training
python killed_run.py sample 3 grpo -c grpo ...      at the 3rd batch that is sampled
python killed_run.py collect 4 grpo -c grpo ...    at the 4th batch that is waited for (own process)
python killed_run.py saved 2 sft -c sft ...         right after the 2nd checkpoint is written
python killed_run.py saving 2 sft -c sft ...        while the 2nd checkpoint is being written
"""

from __future__ import annotations

import os
import signal
import sys

from workings.cli.main import main
from workings.rollout.process_engine import ProcessEngine
from workings.rollout.transformers_engine import TransformersEngine
from workings.training import checkpointer, step


def killing(function, at, *, after=False):
    """`function` that kills the process at its `at`-th call, before or after doing its work."""
    calls = 0

    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == at and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapper


if __name__ == "__main__":
    moment, at = sys.argv[1], int(sys.argv[2])
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
    sys.exit(main(sys.argv[3:]))
