"""The worker pool: deadlines, kills, replacements, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from workings.errors import ConfigError, GradingError
from workings.grading.workers import worker
from workings.grading.workers.batch import Reply
from workings.grading.workers.launcher import FreshInterpreters
from workings.grading.workers.pool import WorkerPool
from workings.types import Verdict

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")

EQUAL = {"answer": "x+1", "gold": "1+x"}
OPEN = {"answer": "x+2", "gold": "1+x"}
BOMB = {"answer": "9^{9^{9^{9}}}", "gold": "5+x"}


def make_pool(**settings: object) -> WorkerPool:
    values: dict[str, object] = {"num_workers": 1, "deadline_seconds": 5.0} | settings
    return WorkerPool(**values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    one = make_pool(num_workers=2, deadline_seconds=0.8)
    one.run([EQUAL])
    yield one
    one.close()


def verdict(reply: Reply) -> str | None:
    return None if reply.answer is None else reply.answer["verdict"]


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def my_workers() -> set[int]:
    """Worker processes of this process: grandchildren, by way of the fork servers."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_replies_come_in_the_order_of_the_tasks(pool: WorkerPool) -> None:
    replies = pool.run([EQUAL, OPEN, EQUAL, OPEN, OPEN])
    assert [verdict(reply) for reply in replies] == [
        "equal", "undecided", "equal", "undecided", "undecided"
    ]  # fmt: skip
    assert pool.run([]) == []


def test_a_bomb_costs_one_deadline_and_its_neighbours_nothing(pool: WorkerPool) -> None:
    start = time.monotonic()
    replies = pool.run([OPEN, BOMB, *[EQUAL] * 20])
    seconds = time.monotonic() - start
    assert [verdict(reply) for reply in replies] == ["undecided", None, *["equal"] * 20]
    assert replies[1].seconds == pytest.approx(0.95 * 0.8, abs=0.15)
    assert seconds < 0.8 + 0.5


def test_a_killed_worker_is_replaced_in_milliseconds(pool: WorkerPool) -> None:
    pool.run([BOMB])
    start = time.monotonic()
    assert verdict(pool.run([EQUAL])[0]) == "equal"
    assert time.monotonic() - start < 0.5  # about 30 ms on an idle machine


def test_the_deadline_starts_when_a_worker_takes_the_task() -> None:
    pool = make_pool(num_workers=1, deadline_seconds=0.6)
    try:
        tasks = [{"answer": f"x^{n}+1", "gold": f"1+x^{n}"} for n in range(2, 82)]
        start = time.monotonic()
        replies = pool.run([BOMB, *tasks])
        assert time.monotonic() - start > 0.4  # most of them waited longer than their own work
        assert [verdict(reply) for reply in replies] == [None, *["equal"] * 80]
        assert max(reply.seconds for reply in replies[1:]) < 0.24
    finally:
        pool.close()


@posix_only
def test_A15e_a_worker_killed_from_outside_is_replaced_and_the_task_tried_again() -> None:
    pool = make_pool(deadline_seconds=60.0)
    try:
        pool.run([EQUAL])
        (pid,) = pool.idle_pids()
        server = psutil.Process(pid).parent()
        assert server is not None
        found: list[Reply] = []
        thread = threading.Thread(target=lambda: found.extend(pool.run([BOMB])))
        thread.start()
        killed: set[int] = set()
        while len(killed) < 2:
            busy = {child.pid for child in server.children()} - killed
            if busy:
                time.sleep(0.2)  # by then it has taken the task
                os.kill(min(busy), signal.SIGKILL)
                killed |= busy
        thread.join(10)
        assert not thread.is_alive()
        assert found[0].answer is None
        assert verdict(pool.run([EQUAL])[0]) == "equal"
    finally:
        pool.close()


@posix_only
def test_an_idle_worker_or_the_fork_server_may_die() -> None:
    pool = make_pool()
    try:
        pool.run([EQUAL])
        (pid,) = pool.idle_pids()
        parent = psutil.Process(pid).ppid()
        os.kill(pid, signal.SIGKILL)
        assert verdict(pool.run([EQUAL])[0]) == "equal"
        os.kill(parent, signal.SIGKILL)
        assert verdict(pool.run([EQUAL])[0]) == "equal"
    finally:
        pool.close()


def test_workers_are_recycled() -> None:
    pool = make_pool(tasks_per_worker=2)
    try:
        seen = []
        for _ in range(4):
            pool.run([EQUAL])
            seen.append(tuple(pool.idle_pids()))
        assert seen[1] == seen[3] == ()
        assert seen[0] != seen[2]
    finally:
        pool.close()


@posix_only
def test_closing_leaves_no_process_and_refuses_work() -> None:
    before = my_workers()
    pool = make_pool(num_workers=2)
    pool.run([EQUAL] * 4)
    started = my_workers() - before
    assert len(started) >= 2
    pool.close()
    pool.close()
    assert wait_until(lambda: all(map(is_gone, started)))
    with pytest.raises(GradingError, match="the grader is closed"):
        pool.run([EQUAL])


@posix_only
def test_a_forgotten_pool_leaves_no_process() -> None:
    before = my_workers()
    pool = make_pool()
    pool.run([EQUAL])
    started = my_workers() - before
    del pool
    assert wait_until(lambda: all(map(is_gone, started)))


def test_an_exception_while_waiting_leaves_the_pool_usable(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workings.grading.workers import batch

    def interrupted(*_: object, **__: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batch, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.run([EQUAL, OPEN])
    assert [verdict(reply) for reply in pool.run([OPEN, EQUAL])] == ["undecided", "equal"]


def test_many_threads_share_few_workers(pool: WorkerPool) -> None:
    results: dict[int, list[str | None]] = {}

    def work(number: int) -> None:
        tasks = [EQUAL if (number + n) % 2 else OPEN for n in range(10)]
        results[number] = [verdict(reply) for reply in pool.run(tasks)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 8
    for number, found in results.items():
        assert found == ["equal" if (number + n) % 2 else "undecided" for n in range(10)]


def test_fresh_interpreters_serve_where_there_is_no_fork() -> None:
    launcher = FreshInterpreters(memory_bytes=2 << 30)
    pool = make_pool(deadline_seconds=0.8, launcher=launcher)
    try:
        assert [verdict(reply) for reply in pool.run([EQUAL, BOMB])] == ["equal", None]
        assert verdict(pool.run([OPEN])[0]) == "undecided"
        pids = pool.idle_pids()
        assert len(pids) == 1
    finally:
        pool.close()
    assert wait_until(lambda: all(map(is_gone, pids)))


def run_script(tmp_path: Path, code: str, *, wait: bool = True) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if wait:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert err == ""
        process.stdout_text = out  # type: ignore[attr-defined]
    return process


@posix_only
def test_a_script_without_a_main_guard_works_and_ends(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        r"""
        import workings.grading.grader as g
        print("once", g.grade(r"\boxed{(x+1)^2}", "x^2+2x+1").verdict.value)
        """,
    )
    assert done.stdout_text == "once equal\n"  # type: ignore[attr-defined]


@posix_only
def test_a_forked_child_gets_a_pool_of_its_own(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        r"""
        import os, sys
        from workings.grading.grader import Grader
        grader = Grader()
        assert grader.compare("x+1", "1+x").correct
        pid = os.fork()
        if pid == 0:
            assert grader.compare("x+2", "2+x").correct
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert grader.compare("x+3", "3+x").correct
        print("both")
        """,
    )
    assert done.stdout_text == "both\n"  # type: ignore[attr-defined]


@posix_only
def test_the_death_of_the_parent_leaves_no_process_even_in_the_middle_of_a_bomb(
    tmp_path: Path,
) -> None:
    process = run_script(
        tmp_path,
        """
        import threading, time
        from workings.grading.grader import Grader
        from workings.grading.policy import GradingPolicy
        grader = Grader(GradingPolicy(deadline_seconds=600.0), num_workers=2)
        grader.compare("x+1", "1+x")
        bomb = lambda n: grader.compare("9^{9^{9^{%d}}}" % n, "5+x")
        for n in (8, 9):
            threading.Thread(target=bomb, args=(n,), daemon=True).start()
        time.sleep(0.5)
        print("running", flush=True)
        time.sleep(600)
        """,
        wait=False,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert len(children) == 3  # the fork server and two workers
    process.kill()
    process.communicate()
    assert wait_until(lambda: all(map(is_gone, children)))


@posix_only
def test_a_server_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(GradingError, match="fork server did not start: it ended at once") as caught:
        pool.run([EQUAL])
    assert "import math_verify" in (caught.value.hint or "")
    pool.close()


@posix_only
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.syspath_prepend(tmp_path)
    pool = make_pool()
    with pytest.raises(GradingError, match="did not start: ImportError: broken on purpose"):
        pool.run([EQUAL])
    pool.close()


@posix_only
def test_workers_that_always_die_end_in_an_error_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher = FreshInterpreters(memory_bytes=2 << 30)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    pool = make_pool(launcher=launcher)
    with pytest.raises(GradingError, match="5 grader workers in a row ended before they took"):
        pool.run([EQUAL])
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit")
def test_memory_and_cpu_are_limited_within_what_is_allowed(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import resource
        from workings.grading.workers.worker import _limit_cpu, _limit_memory
        resource.setrlimit(resource.RLIMIT_CPU, (50, 50))
        _limit_memory(400 << 20)
        _limit_memory(800 << 20)  # may not be raised again
        _limit_cpu(2.0)
        print(resource.getrlimit(resource.RLIMIT_CPU)[0] <= 9)
        _limit_cpu(200.0)  # above what the system allows: left alone
        try:
            bytearray(600 << 20)
        except MemoryError:
            print("limited")
        """,
    )
    assert done.stdout_text == "True\nlimited\n"  # type: ignore[attr-defined]


def test_what_a_parser_does_with_text_never_ends_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from workings.grading import peer

    def raising(error: BaseException) -> Callable[[str, str], bool]:
        def compare(answer: str, gold: str) -> bool:
            raise error

        return compare

    for error, expected in (
        (MemoryError(), Verdict.REFUSED),
        (RecursionError(), Verdict.REFUSED),
        (ZeroDivisionError("x"), Verdict.INTERNAL_ERROR),
    ):
        monkeypatch.setattr(peer, "peer_says_equal", raising(error))
        answered = worker._answer(EQUAL)
        assert answered["verdict"] == expected
        assert answered["detail"] == repr(error)


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_workers=0; expected 1 or more"):
        make_pool(num_workers=0)
