"""What a worker may and may not use."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile import MEMORY_BYTES, fork_server
from processes import run_script
from workings.grading.workers.isolation import _ARCHITECTURES, _filter_program
from workings.grading.workers.pool import WorkerPool

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces all limits")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    one = WorkerPool(num_workers=1, deadline_seconds=2.0, launcher=fork_server())
    yield one
    one.close()


def ask(pool: WorkerPool, task: dict[str, Any]) -> Any:
    (reply,) = pool.run([task])
    assert reply.answer is not None, reply
    return reply.answer["value"]


@linux_only
def test_limits_and_surroundings(pool: WorkerPool) -> None:
    found = ask(pool, {"do": "describe"})
    assert found["memory"] == MEMORY_BYTES
    assert 5 < found["cpu_left"] < 8
    assert found["core"] == 0
    assert found["stdout"] == found["stderr"] == "/dev/null"


def test_hashes_are_the_same_in_every_worker(pool: WorkerPool) -> None:
    other = WorkerPool(num_workers=1, deadline_seconds=2.0, launcher=fork_server())
    try:
        assert ask(pool, {"do": "describe"})["hash"] == ask(other, {"do": "describe"})["hash"]
    finally:
        other.close()


@linux_only
def test_a_worker_has_no_descriptors_but_its_own(pool: WorkerPool, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file, socket.socket() as connection:
        os.set_inheritable(file.fileno(), True)
        os.set_inheritable(connection.fileno(), True)
        fresh = WorkerPool(num_workers=1, deadline_seconds=2.0, launcher=fork_server())
        try:
            assert ask(fresh, {"do": "descriptors"}) == ["/dev/null"] * 3 + ["socket"]
        finally:
            fresh.close()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _ARCHITECTURES,
    reason="the filter is for Linux on x86-64 and ARM64",
)
def test_no_network_no_program_no_file(pool: WorkerPool, tmp_path: Path) -> None:
    found = ask(pool, {"do": "reach out", "path": str(tmp_path / "file")})
    assert found == {
        "socket": "PermissionError",
        "program": "PermissionError",
        "file": "OSError",  # it is created and stays empty
    }


def test_the_filter_jumps_to_where_it_should() -> None:
    """An interpreter of these five instructions, beside the kernel's."""
    for audit_number, _, denied in _ARCHITECTURES.values():
        program = _filter_program(audit_number, denied)

        def verdict(arch: int, call: int, program: bytes = program) -> int:
            position, loaded = 0, 0
            while True:
                code, if_true, if_false, value = _instruction(program, position)
                position += 1
                if code == 0x20:
                    loaded = {0: call, 4: arch}[value]
                elif code == 0x15:
                    position += if_true if loaded == value else if_false
                elif code == 0x35:
                    position += if_true if loaded >= value else if_false
                else:
                    return value

        refused = {call for call in range(600) if verdict(audit_number, call) != 0x7FFF0000}
        assert refused == set(denied)
        assert verdict(audit_number, denied[0]) == 0x5000D
        assert verdict(audit_number, 0x40000000) == 0x5000D
        assert verdict(audit_number + 1, 0) == 0x5000D


def _instruction(program: bytes, position: int) -> tuple[int, int, int, int]:
    import struct

    return struct.unpack_from("HBBI", program, 8 * position)  # type: ignore[return-value]


@linux_only
def test_memory_and_cpu_are_limited_within_what_is_allowed(tmp_path: Path) -> None:
    output = run_script(
        tmp_path,
        """
        import resource
        from workings.grading.workers.isolation import limit_cpu, limit_memory
        resource.setrlimit(resource.RLIMIT_CPU, (50, 50))
        limit_memory(400 << 20)
        limit_memory(800 << 20)  # may not be raised again
        limit_cpu(2.0)
        print(resource.getrlimit(resource.RLIMIT_CPU)[0] <= 9)
        limit_cpu(200.0)  # above what the system allows: left alone
        try:
            bytearray(600 << 20)
        except MemoryError:
            print("limited")
        """,
    )
    assert output == "True\nlimited\n"
