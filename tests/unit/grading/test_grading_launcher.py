"""Where workers come from: the fork server and fresh interpreters, and why there may be none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile import HANDLER, MEMORY_BYTES, echo
from processes import all_gone, descendants, wait_until
from workings.errors import GradingError
from workings.grading.workers import batch
from workings.grading.workers.fork_server import ForkServer
from workings.grading.workers.interpreters import FreshInterpreters
from workings.grading.workers.launcher import Launcher, Worker, channel_pair, start_python
from workings.grading.workers.pool import WorkerPool

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")
MakeLauncher = Callable[..., Launcher]
both = pytest.mark.parametrize(
    "make_launcher", [pytest.param(ForkServer, marks=posix_only), FreshInterpreters]
)


def make_pool(make_launcher: MakeLauncher, handler: str = HANDLER) -> WorkerPool:
    launcher = make_launcher(handler=handler, memory_bytes=MEMORY_BYTES)
    return WorkerPool(num_workers=2, deadline_seconds=0.8, launcher=launcher)


def texts(pool: WorkerPool, *values: str) -> list[object]:
    replies = pool.run([echo(value) for value in values])
    return [reply.answer and reply.answer["value"] for reply in replies]


@both
def test_workers_answer_die_and_are_replaced(make_launcher: MakeLauncher) -> None:
    before = descendants()
    pool = make_pool(make_launcher)
    try:
        assert texts(pool, "a", "b", "c") == ["a", "b", "c"]
        replies = pool.run([{"do": "spin"}, echo("d"), {"do": "exit"}])
        assert [reply.answer for reply in replies] == [None, {"value": "d"}, None]
        assert texts(pool, "e") == ["e"]
        started = descendants() - before
        assert started
    finally:
        pool.close()
    assert wait_until(lambda: all_gone(started))


@both
def test_a_library_that_is_missing_is_named(make_launcher: MakeLauncher) -> None:
    pool = make_pool(make_launcher, "no_such_library")
    with pytest.raises(GradingError, match="No module named 'no_such_library'") as caught:
        pool.run([echo()])
    assert (caught.value.hint or "") != ""
    pool.close()


@posix_only
def test_the_hint_names_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_library.py").write_text("def warm_up(): raise ImportError('on purpose')")
    monkeypatch.syspath_prepend(tmp_path)
    pool = make_pool(ForkServer, "broken_library")
    with pytest.raises(GradingError, match="do not start: ImportError: on purpose") as caught:
        pool.run([echo()])
    assert "python -c 'import broken_library'" in (caught.value.hint or "")
    pool.close()


@posix_only
def test_a_server_that_ends_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(ForkServer)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(GradingError, match="the grader's workers do not start: it ended at once"):
        pool.run([echo()])
    pool.close()


@both
@pytest.mark.parametrize("program", ["", "/no/such/python"])
def test_an_interpreter_that_is_not_there_is_named(
    program: str, make_launcher: MakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(make_launcher)
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(GradingError, match="cannot start a process of") as caught:
        pool.run([echo()])
    assert caught.value.hint == "sys.executable must be the path of a Python interpreter"
    pool.close()


@both
def test_a_worker_that_never_gets_ready_is_given_up(
    make_launcher: MakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_library.py").write_text("import time\ndef warm_up(): time.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)
    pool = make_pool(make_launcher, "slow_library")
    monkeypatch.setattr(batch, "START_SECONDS", 0.3)
    with pytest.raises(GradingError, match="was not ready after 0 s"):
        pool.run([echo()])
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 20.0  # not the ten minutes of its start


@posix_only
def test_workers_that_always_die_end_in_an_error_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make_pool(FreshInterpreters)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(GradingError, match="5 grader workers in a row ended before they took"):
        pool.run([echo()])
    pool.close()


@posix_only
def test_a_fork_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "no_fork.py").write_text(
        "import errno, os\n"
        "def refuse(): raise OSError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "def warm_up(): os.fork = refuse\n"
    )
    path = [*sys.path]
    sys.path.insert(0, str(tmp_path))
    pool = make_pool(ForkServer, "no_fork")
    try:
        with pytest.raises(GradingError, match="cannot fork: Resource temporarily unavailable"):
            pool.run([echo()])
    finally:
        pool.close()
        sys.path[:] = path


def test_an_interpreter_is_not_told_how_to_warn_or_what_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "seen"
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    ours, theirs = channel_pair()
    process = start_python(
        f"import os; open({str(target)!r}, 'w').write("
        f"str((os.environ.get('PYTHONWARNINGS'), os.environ['PYTHONHASHSEED'], sys.warnoptions)))",
        theirs.fileno(),
    )
    assert process.wait(30) == 0
    ours.close()
    theirs.close()
    assert target.read_text() == "(None, '0', [])"


def test_a_worker_that_says_something_else_first_is_not_usable() -> None:
    for first in (b"[]", b"{", b'{"fault": "no memory"}'):
        ours, theirs = channel_pair()
        worker = Worker(ours, 0)
        assert worker.is_usable()  # it may be starting
        theirs.sendall(len(first).to_bytes(4, "big") + first)
        assert not worker.is_usable()
        ours.close()
        theirs.close()
