"""Tasks on a Ray cluster: the only file that imports `ray`.

Every task is the same command as on one machine, run by whichever node has room for it. The nodes
share the folder of the sweep and have the package installed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from workings.errors import ConfigError
from workings.launch.local_processes import command
from workings.launch.sweep import Ended, Task

POLL_SECONDS = 0.5


class RayTasks:
    """The launcher of a Ray cluster, or of a local one where none is running.

    `address` is Ray's own ("auto" for the cluster that this machine belongs to, None for
    RAY_ADDRESS or a new local cluster). A task asks for `num_cpus` cores and `num_gpus` devices;
    `jobs` bounds how many are handed over at once, 0 leaves that to the cluster.
    """

    def __init__(
        self,
        *,
        jobs: int = 0,
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
        address: str | None = None,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "launcher=ray needs the ray package, which is not installed",
                hint="pip install workings[ray], or launcher=local",
            ) from error
        self._ray = ray
        self._jobs, self._num_cpus, self._num_gpus = jobs, num_cpus, num_gpus
        self._address = address

    def run(self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended) -> None:
        """Run all tasks; those that run are cancelled when this is interrupted."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            ray.init(address=self._address, log_to_driver=False, include_dashboard=False)
        remote = ray.remote(num_cpus=self._num_cpus, num_gpus=self._num_gpus, max_retries=0)(
            _run_command
        )
        waiting = list(tasks)
        running: dict[object, tuple[Task, float]] = {}
        try:
            while waiting or running:
                while waiting and (not self._jobs or len(running) < self._jobs):
                    task = waiting.pop(0)
                    reference = remote.remote(
                        command(task)[1:], str(task.log.absolute()), os.getcwd()
                    )
                    running[reference] = (task, time.monotonic())
                    started(task)
                ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    task, since = running.pop(reference)
                    ended(task, self._exit_code(reference, task), time.monotonic() - since)
        finally:
            for reference, (task, since) in running.items():
                ray.cancel(reference)
                ended(task, self._exit_code(reference, task), time.monotonic() - since)
            if ours:
                ray.shutdown()

    def _exit_code(self, reference: object, task: Task) -> int:
        """The command's exit code; 1 where Ray itself failed, with its message in the log."""
        try:
            return int(self._ray.get(reference))
        except (self._ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return 130
        except self._ray.exceptions.RayError as error:
            with task.log.open("a", encoding="utf-8") as log:
                log.write(f"error: {' '.join(str(error).split())}\n")
            return 1


def _run_command(arguments: list[str], log: str, folder: str) -> int:
    """On a node: the exit code of this node's Python with the arguments; it is asked to stop when
    the task is cancelled."""
    import pathlib
    import signal
    import subprocess
    import sys

    pathlib.Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait()
        except KeyboardInterrupt:  # Ray's way of cancelling a running task
            process.send_signal(signal.SIGTERM)
            return process.wait()
