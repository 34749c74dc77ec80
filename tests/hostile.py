"""What a worker runs in the tests of the pool: tasks that hang, die, or take what is not theirs."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from workings.grading.workers.fork_server import ForkServer

HANDLER = "hostile"
MEMORY_BYTES = 2 << 30


def warm_up() -> None:
    """Nothing to load."""


def answer(task: Mapping[str, Any]) -> dict[str, Any]:
    """{"value"}: what the task asks for by its key "do"; for a grader's, a verdict or never one."""
    if "do" not in task:
        if "bomb" in task["answer"]:
            _spin(task)
        return {"verdict": "undecided", "tier": None, "reason": "not compared", "detail": None}
    return {"value": _TASKS[task["do"]](task)}


def _echo(task: Mapping[str, Any]) -> Any:
    return task.get("value")


def _sleep(task: Mapping[str, Any]) -> None:
    time.sleep(task["seconds_asleep"])


def _work(task: Mapping[str, Any]) -> Any:
    for _ in range(task["num_steps"]):
        pass
    return task.get("value")


def _spin(task: Mapping[str, Any]) -> None:
    while True:
        pass


def _hold_the_interpreter(task: Mapping[str, Any]) -> int:
    return len(str(9**9**9))  # one step of the interpreter, for minutes


def _fill_and_spin(task: Mapping[str, Any]) -> None:
    held = bytearray(os.urandom(1)) * task["num_bytes"]
    while held:
        pass


def _eat(task: Mapping[str, Any]) -> str:
    held = []
    try:
        while True:
            held.append(b"x" * (32 << 20))
    except MemoryError:
        return f"{len(held) * 32 << 20}"


def _exit(task: Mapping[str, Any]) -> None:
    os._exit(3)


def _crash(task: Mapping[str, Any]) -> None:
    ctypes.string_at(0)


def _say(task: Mapping[str, Any]) -> None:
    """Write raw bytes to the parent, past the protocol; then wait."""
    for name in os.listdir("/proc/self/fd"):
        handle = int(name)
        try:
            is_socket = os.readlink(f"/proc/self/fd/{handle}").startswith("socket:")
        except OSError:
            continue
        if is_socket:
            os.write(handle, bytes.fromhex(task["bytes"]))
    time.sleep(task.get("then", 600))


def _drip(task: Mapping[str, Any]) -> None:
    """Begin a long message and never end it, a byte at a time."""
    message = (1 << 20).to_bytes(4, "big").hex()
    _say({"bytes": message, "then": 0})
    while True:
        _say({"bytes": "00", "then": 0.001})


def _descriptors(task: Mapping[str, Any]) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").split(":")[0])
        except OSError:  # the one that listed the folder
            continue
    return sorted(found)


def _refused(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return "allowed"


def _reach_out(task: Mapping[str, Any]) -> dict[str, str]:
    return {
        "socket": _refused(lambda: socket.socket().close()),
        "program": _refused(lambda: subprocess.run([sys.executable, "-c", ""], check=True)),
        "file": _refused(lambda: _write(task["path"])),
    }


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def _describe(task: Mapping[str, Any]) -> dict[str, Any]:
    import resource

    sys.stdout.write("to nowhere")
    return {
        "pid": os.getpid(),
        "hash": hash("workings"),
        "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
        "cpu_left": resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "stdout": os.readlink("/proc/self/fd/1"),
        "stderr": os.readlink("/proc/self/fd/2"),
    }


_TASKS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "echo": _echo,
    "sleep": _sleep,
    "work": _work,
    "spin": _spin,
    "hold": _hold_the_interpreter,
    "fill": _fill_and_spin,
    "eat": _eat,
    "exit": _exit,
    "crash": _crash,
    "say": _say,
    "drip": _drip,
    "descriptors": _descriptors,
    "reach out": _reach_out,
    "describe": _describe,
}


def fork_server() -> ForkServer:
    """A launcher of workers that do these tasks."""
    return ForkServer(handler=HANDLER, memory_bytes=MEMORY_BYTES)


def echo(value: object = None) -> dict[str, Any]:
    """A task that is answered at once, with that value."""
    return {"do": "echo", "value": value}
