"""Tasks as processes of this machine, a few at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from workings.errors import ConfigError, StoppedBySignal
from workings.launch.sweep import Ended, Task

POLL_SECONDS = 0.1
_THREADS = "OMP_NUM_THREADS"


@dataclass(slots=True, kw_only=True)
class _Running:
    task: Task
    process: subprocess.Popen[bytes]
    since: float
    device: str | None


class LocalProcesses:
    """The launcher of this machine.

    `jobs` is how many tasks run at once. With `devices` every running task sees one of them alone
    (CUDA_VISIBLE_DEVICES). Tasks share the cores, unless OMP_NUM_THREADS says otherwise. When it is
    interrupted or asked to end (SIGTERM), every task is asked to save and stop, and waited for.
    """

    def __init__(self, *, jobs: int = 1, devices: Sequence[str] = ()) -> None:
        if devices and jobs > len(devices):
            raise ConfigError(
                f"--jobs {jobs} with {len(devices)} devices: every run gets a device of its own",
                hint=f"--jobs {len(devices)}, or name more devices",
            )
        self._jobs = jobs
        self._devices = list(devices)

    def run(self, tasks: Sequence[Task], *, started: Callable[[Task], None], ended: Ended) -> None:
        """Run all tasks, `jobs` at a time, in their order."""
        waiting, running = list(tasks), list[_Running]()
        with ExitStack() as stack:
            stack.callback(_stop_all, running, ended)
            stack.enter_context(_sigterm_as_error())
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    running.append(self._start(waiting.pop(0)))
                    started(running[-1].task)
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    self._give_back(one)
                    ended(one.task, one.process.returncode, time.monotonic() - one.since)
                time.sleep(POLL_SECONDS)

    def _start(self, task: Task) -> _Running:
        environment = dict(os.environ)
        environment.setdefault(_THREADS, str(max(1, (os.cpu_count() or 1) // self._jobs)))
        device = self._devices.pop(0) if self._devices else None
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("wb") as log:
            process = subprocess.Popen(
                command(task),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                # A session of its own: Ctrl-C reaches this process alone, which then asks each
                # task to stop once, so that none takes a second signal for "at once".
                start_new_session=True,
                # The sweep's lock is passed on: it is held until its last run has ended.
                close_fds=False,
            )
        return _Running(task=task, process=process, since=time.monotonic(), device=device)

    def _give_back(self, one: _Running) -> None:
        if one.device is not None:
            self._devices.append(one.device)


def command(task: Task) -> list[str]:
    """The command line of a task, with the Python that runs this process."""
    return [sys.executable, "-m", "workings.cli.main", *task.arguments]


def _stop_all(running: list[_Running], ended: Ended) -> None:
    """Ask every running task to save and stop, and wait until it has."""
    for one in running:
        one.process.send_signal(signal.SIGTERM)
    for one in running:
        one.process.wait()
        ended(one.task, one.process.returncode, time.monotonic() - one.since)
    running.clear()


@contextmanager
def _sigterm_as_error() -> Iterator[None]:
    """SIGTERM raises StoppedBySignal inside, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_stopped(number: int, _: object) -> None:
    raise StoppedBySignal(
        number, "the sweep was asked to stop; its runs were saved", hint="the same command goes on"
    )
