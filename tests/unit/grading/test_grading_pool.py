"""The worker pool: deadlines, kills, the worker in reserve, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hostile import echo, fork_server
from processes import all_gone, descendants, is_gone, run_script, start_script, wait_until
from workings.errors import ConfigError, GradingError
from workings.grading.workers import batch as batch_module
from workings.grading.workers.batch import Reply
from workings.grading.workers.launcher import Worker
from workings.grading.workers.pool import WorkerPool

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")

SPIN = {"do": "spin"}


def make_pool(**settings: Any) -> WorkerPool:
    values = {"num_workers": 1, "deadline_seconds": 5.0, "launcher": fork_server()} | settings
    return WorkerPool(**values)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    one = make_pool(num_workers=2, deadline_seconds=0.8)
    one.run([echo()])
    yield one
    one.close()


def value(reply: Reply) -> Any:
    return None if reply.answer is None else reply.answer["value"]


def kill(pid: int) -> None:
    """End a process, and wait until it is no more."""
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: is_gone(pid))


def test_replies_come_in_the_order_of_the_tasks(pool: WorkerPool) -> None:
    assert [value(reply) for reply in pool.run([echo(n) for n in range(500)])] == [*range(500)]
    assert pool.run([]) == []


def test_long_texts_pass_whole(pool: WorkerPool) -> None:
    texts = ["x" * 300_000, "\ud800\x00\u2603" * 20_000, "short"]
    assert [value(reply) for reply in pool.run([echo(text) for text in texts] * 3)] == texts * 3


@pytest.mark.parametrize("bomb", ["spin", "hold"])
def test_a_bomb_costs_one_deadline_and_its_neighbours_nothing(bomb: str, pool: WorkerPool) -> None:
    start = time.monotonic()
    replies = pool.run([echo(-1), {"do": bomb}, *map(echo, range(20))])
    seconds = time.monotonic() - start
    assert [value(reply) for reply in replies] == [-1, None, *range(20)]
    assert replies[1].reason == "no verdict within 0.8 s"
    assert replies[1].seconds == pytest.approx(0.95 * 0.8, abs=0.5)
    assert seconds < 0.8 + 2.0


def test_each_bomb_of_a_batch_costs_a_deadline_on_one_worker(pool: WorkerPool) -> None:
    start = time.monotonic()
    replies = pool.run([SPIN, SPIN, SPIN, SPIN, echo(1)])
    assert [value(reply) for reply in replies] == [None] * 4 + [1]
    assert 1.4 < time.monotonic() - start < 3.1  # four bombs, two workers


def test_the_deadline_starts_when_a_worker_takes_the_task() -> None:
    pool = make_pool(deadline_seconds=0.5)
    try:
        tasks = [{"do": "sleep", "seconds_asleep": 0.02} for _ in range(40)]
        start = time.monotonic()
        replies = pool.run([*tasks, echo("last")])
        assert time.monotonic() - start > 0.7  # most of them waited longer than a deadline
        assert value(replies[-1]) == "last"
        assert all(reply.answer is not None for reply in replies)
        assert max(reply.seconds for reply in replies) < 0.5
    finally:
        pool.close()


def test_a_killed_worker_has_a_successor_that_is_ready_before_the_kill(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    discard = pool.discard
    ready_at_kill = []

    def noting(worker: Worker) -> None:
        ready_at_kill.append(pool.reserve_pids())
        discard(worker)

    monkeypatch.setattr(pool, "discard", noting)
    pool.run([echo()] * 20)
    assert wait_until(lambda: pool.reserve_pids() != [])
    pool.run([SPIN])
    assert len(ready_at_kill) == 2  # it had two tries
    assert all(ready_at_kill)
    assert value(pool.run([echo(1)])[0]) == 1
    assert pool.idle_pids()[-1] in ready_at_kill[-1]


def test_as_many_are_in_reserve_as_died_and_one_more() -> None:
    pool = make_pool(num_workers=3, deadline_seconds=0.3)
    try:
        pool.run([{"do": "sleep", "seconds_asleep": 0.05}] * 3)
        assert len(pool.idle_pids()) == 3
        assert wait_until(lambda: len(pool.reserve_pids()) == 1)
        pool.run([SPIN])
        assert len(pool.idle_pids()) == 1
        assert wait_until(lambda: len(pool.reserve_pids()) == 3)
        pool.run([{"do": "sleep", "seconds_asleep": 0.05}] * 3)
        assert wait_until(lambda: len(pool.reserve_pids()) == 1)
        assert len(pool.idle_pids()) == 3
    finally:
        pool.close()


def test_memory_of_the_killed_is_not_waited_for() -> None:
    pool = make_pool(deadline_seconds=2.5)
    try:
        pool.run([echo()])
        pool.run([{"do": "fill", "num_bytes": 700 << 20}])
        start = time.monotonic()
        assert value(pool.run([echo(1)])[0]) == 1
        assert time.monotonic() - start < 2.0  # about a millisecond on an idle machine
    finally:
        pool.close()


def test_A15e_a_worker_killed_from_outside_is_replaced_and_the_task_tried_again() -> None:
    pool = make_pool(deadline_seconds=60.0)
    try:
        pool.run([echo()])
        found: list[Reply] = []
        thread = threading.Thread(target=lambda: found.extend(pool.run([SPIN])))
        thread.start()
        for _ in range(2):
            time.sleep(0.2)  # by then a worker has taken it
            (pid,) = pool.lent_pids()
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda pid=pid: pid not in pool.lent_pids())  # type: ignore[misc]
        thread.join(10)
        assert not thread.is_alive()
        assert found[0].answer is None
        assert found[0].reason == "the process that compared them failed, twice"
        assert value(pool.run([echo(1)])[0]) == 1
    finally:
        pool.close()


@pytest.mark.parametrize(
    "task",
    [
        {"do": "exit"},
        {"do": "crash"},
        {"do": "say", "bytes": "ff" * 9},  # a length that cannot be
        {"do": "say", "bytes": "00000002" + b"{}".hex()},  # an answer without a time
        {"do": "say", "bytes": "00000001" + b"[".hex()},
        {"do": "say", "bytes": "00000002" + b"[]".hex()},
    ],
    ids=str,
)
def test_a_worker_that_dies_or_talks_nonsense_costs_its_task_alone(
    task: dict[str, Any], pool: WorkerPool
) -> None:
    replies = pool.run([echo(1), task, echo(2)])
    assert [value(reply) for reply in replies] == [1, None, 2]
    assert replies[1].reason == "the process that compared them failed, twice"
    assert [value(reply) for reply in pool.run([echo(3)] * 4)] == [3] * 4


@pytest.mark.parametrize("task", [{"do": "say", "bytes": "00000009aa"}, {"do": "drip"}], ids=str)
def test_half_a_message_does_not_make_the_caller_wait(
    task: dict[str, Any], pool: WorkerPool
) -> None:
    start = time.monotonic()
    (reply,) = pool.run([task])
    assert reply.reason == "no verdict within 0.8 s"
    assert time.monotonic() - start < 0.8 + 2.0


def test_what_a_worker_says_unasked_ends_it(pool: WorkerPool) -> None:
    twice = "".join(f"{len(text):08x}{text.hex()}" for text in [b'{"seconds": 1}'] * 2)
    pool.run([{"do": "say", "bytes": twice}])
    assert [value(reply) for reply in pool.run([echo(3)] * 4)] == [3] * 4


def test_running_out_of_memory_is_bounded_and_survived() -> None:
    pool = make_pool(deadline_seconds=60.0)
    try:
        (reply,) = pool.run([{"do": "eat"}])
        assert 1 << 30 < int(value(reply)) < 2 << 30
        assert value(pool.run([echo(1)])[0]) == 1
    finally:
        pool.close()


def test_idle_workers_the_reserve_and_the_fork_server_may_die() -> None:
    pool = make_pool()
    try:
        pool.run([echo()])
        assert wait_until(lambda: pool.reserve_pids() != [])
        (pid,), (spare,) = pool.idle_pids(), pool.reserve_pids()
        server = psutil.Process(pid).ppid()
        kill(pid)
        assert value(pool.run([echo(1)])[0]) == 1
        assert pool.idle_pids() == [spare]
        assert wait_until(lambda: pool.reserve_pids() != [])
        (second,) = pool.reserve_pids()
        kill(second)
        kill(spare)
        assert value(pool.run([echo(1)])[0]) == 1
        kill(server)
        assert value(pool.run([echo(1)])[0]) == 1
        assert psutil.Process(pool.idle_pids()[0]).ppid() != server
    finally:
        pool.close()


def test_a_fork_server_that_dies_at_work_costs_nobody_a_verdict() -> None:
    pool = make_pool(deadline_seconds=30.0)
    try:
        pool.run([echo()])
        server = psutil.Process(pool.idle_pids()[0]).ppid()
        found: list[Reply] = []
        tasks = [{"do": "sleep", "seconds_asleep": 0.4}, *map(echo, range(10))]
        thread = threading.Thread(target=lambda: found.extend(pool.run(tasks)))
        thread.start()
        time.sleep(0.2)
        os.kill(server, signal.SIGKILL)
        thread.join(20)
        assert [value(reply) for reply in found] == [None, *range(10)]
        assert found[0].answer == {"value": None}
        for n in range(20):  # whichever of its workers is met first is dying, or is not yet
            os.kill(psutil.Process(pool.idle_pids()[-1]).ppid(), signal.SIGKILL)
            assert value(pool.run([echo(n)])[0]) == n
    finally:
        pool.close()


def test_workers_are_recycled() -> None:
    pool = make_pool(tasks_per_worker=2)
    try:
        seen = []
        for _ in range(4):
            pool.run([echo()])
            seen.append(tuple(pool.idle_pids()))
        assert seen[1] == seen[3] == ()
        assert seen[0] != seen[2]
    finally:
        pool.close()


def test_closing_leaves_no_process_and_refuses_work() -> None:
    before = descendants()
    pool = make_pool(num_workers=2)
    pool.run([echo()] * 4)
    started = descendants() - before
    assert len(started) >= 2
    pool.close()
    pool.close()
    assert wait_until(lambda: all_gone(started))
    for call in (pool.start, lambda: pool.run([echo()])):
        with pytest.raises(GradingError, match="the grader is closed"):
            call()


def test_closing_ends_the_work_of_others() -> None:
    pool = make_pool(deadline_seconds=60.0)
    pool.run([echo()])
    errors: list[BaseException] = []

    def work() -> None:
        try:
            pool.run([SPIN, echo()])
        except GradingError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    pool.close()
    for thread in threads:
        thread.join(10)
    assert [str(error).split("\n")[0] for error in errors] == ["the grader is closed"] * 2


def test_a_forgotten_pool_leaves_no_process() -> None:
    before = descendants()
    pool = make_pool()
    pool.run([echo()])
    started = descendants() - before
    del pool
    assert wait_until(lambda: all_gone(started))


def test_starting_ahead_of_need() -> None:
    pool = make_pool()
    try:
        pool.start()
        pool.start()
        assert wait_until(lambda: pool.reserve_pids() != [])
        first = pool.reserve_pids()
        pool.run([echo()])
        assert pool.idle_pids() == first
    finally:
        pool.close()


def test_an_exception_while_waiting_leaves_the_pool_usable(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batch_module.Batch, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.run([echo(), echo()])
    assert pool.lent_pids() == []
    assert [value(reply) for reply in pool.run([echo(1), echo(2)])] == [1, 2]


def test_a_second_interrupt_during_the_clean_up_costs_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    pool = make_pool()
    try:
        pool.run([echo()])
        with monkeypatch.context() as patch:
            patch.setattr(batch_module.Batch, "_receive", interrupted)
            patch.setattr(WorkerPool, "release", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.run([echo(), echo()])
        assert len(pool.lent_pids()) == 1
        assert value(pool.run([echo(1)])[0]) == 1
        assert pool.lent_pids() == []
    finally:
        pool.close()


@pytest.mark.slow
def test_interrupts_at_any_moment_leave_the_pool_usable(tmp_path: Path) -> None:
    output = run_script(
        tmp_path,
        f"""
        import random, signal, sys
        sys.path[:] = {[*map(str, sys.path)]!r}
        from hostile import echo, fork_server
        from workings.grading.workers.pool import WorkerPool

        armed = False

        def interrupt(*_):
            if armed:
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        pool = WorkerPool(num_workers=2, deadline_seconds=30.0, launcher=fork_server())
        tasks = [echo(n) for n in range(30)]
        expected = [{{"value": n}} for n in range(30)]
        chance = random.Random(0)
        num_interrupts = 0
        for turn in range(300):
            again = chance.choice([0, 0, 0.0004])
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 0.003 * chance.random(), again)
                pool.run(tasks)
                armed = False
            except KeyboardInterrupt:
                armed = False
                num_interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            if turn % 150 == 149:
                assert [reply.answer for reply in pool.run(tasks)] == expected
        assert pool.lent_pids() == []
        assert len(pool._launcher.workers) < 12
        print(num_interrupts > 30)
        """,
    )
    assert output == "True\n"


def test_many_threads_share_few_workers(pool: WorkerPool) -> None:
    results: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        replies = pool.run([echo((number, n)) for n in range(25)])
        results[number] = [value(reply) for reply in replies]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: [[number, n] for n in range(25)] for number in range(32)}
    assert pool.lent_pids() == []


def test_a_long_batch_does_not_keep_others_waiting() -> None:
    pool = make_pool()
    try:
        pool.run([echo()])
        tasks = [{"do": "sleep", "seconds_asleep": 0.02}] * 100
        busy = threading.Thread(target=lambda: pool.run(tasks))
        busy.start()
        time.sleep(0.2)
        for n in range(3):
            assert value(pool.run([echo(n)])[0]) == n
        assert busy.is_alive()  # its tasks take two seconds
        busy.join()
    finally:
        pool.close()


def test_the_death_of_the_parent_leaves_no_process_even_in_the_middle_of_a_bomb(
    tmp_path: Path,
) -> None:
    process = start_script(
        tmp_path,
        f"""
        import os, sys, threading, time
        sys.path[:] = {[*map(str, sys.path)]!r}
        from hostile import echo, fork_server
        from workings.grading.workers.pool import WorkerPool

        pool = WorkerPool(num_workers=2, deadline_seconds=600.0, launcher=fork_server())
        pool.run([echo()])
        if os.fork() == 0:  # a copy that lives on, and has copies of all descriptors
            os.closerange(0, 3)
            time.sleep(600)
        for _ in range(2):
            threading.Thread(target=lambda: pool.run([{{"do": "spin"}}]), daemon=True).start()
        while len(pool.lent_pids()) < 2 or not pool.reserve_pids():
            time.sleep(0.01)
        print("running", flush=True)
        time.sleep(600)
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    copy = {child.pid for child in psutil.Process(process.pid).children() if is_copy(child)}
    started = descendants(process.pid) - copy
    assert len(copy) == 1
    assert len(started) == 4  # the fork server, two workers, and one in reserve
    process.kill()
    process.wait()
    try:
        assert wait_until(lambda: all_gone(started))
        assert not all_gone(copy)
    finally:
        for pid in copy:
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def is_copy(process: psutil.Process) -> bool:
    return "script.py" in " ".join(process.cmdline())


def test_an_end_without_closing_leaves_no_process(tmp_path: Path) -> None:
    output = run_script(
        tmp_path,
        f"""
        import sys
        sys.path[:] = {[*map(str, sys.path)]!r}
        from hostile import echo, fork_server
        from processes import descendants
        from workings.grading.workers.pool import WorkerPool

        pool = WorkerPool(num_workers=2, deadline_seconds=5.0, launcher=fork_server())
        pool.run([echo()] * 8)
        print(*descendants())
        """,
    )
    started = set(map(int, output.split()))
    assert len(started) >= 3
    assert all_gone(started)


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_workers=0; expected 1 or more"):
        make_pool(num_workers=0)
