"""Where a grader works: scripts, notebooks, forked and spawned processes, Ray; and Ctrl-C."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile import echo, fork_server
from processes import all_gone, descendants, start_script, wait_until
from workings.grading.grader import Grader, shared_grader
from workings.grading.policy import GradingPolicy
from workings.grading.workers import batch
from workings.grading.workers.pool import WorkerPool
from workings.types import Verdict

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")

GRADE_AND_PRINT = r"""
from workings import grade
print(grade(r"\boxed{x+1}", "1+x").verdict, grade(r"\boxed{0.5}", "1/2").verdict)
"""
"""Without a guard of the main module: no worker may run it again."""


def first_verdicts(grader: Grader) -> list[str]:
    """Of a pair that needs a worker and one that does not."""
    return [grader.compare("x+1", "1+x").verdict, grader.compare("0.5", "1/2").verdict]


def test_python_that_reads_its_program_from_stdin() -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=GRADE_AND_PRINT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("equal equal\n", "")


@pytest.mark.slow
def test_python_with_the_program_in_a_file_or_an_argument(tmp_path: Path) -> None:
    script = tmp_path / "grade.py"  # a name that hides no module of ours
    script.write_text(GRADE_AND_PRINT)
    for arguments in ([str(script)], ["-c", GRADE_AND_PRINT], ["-W", "error", str(script)]):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=120
        )
        assert (done.stdout, done.stderr) == ("equal equal\n", "")


def in_forked_child(action: Callable[[], bool]) -> bool:
    """What the action returns in a forked copy of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@posix_only
def test_a_forked_copy_of_a_pool_has_workers_of_its_own() -> None:
    pool = WorkerPool(num_workers=1, deadline_seconds=30.0, launcher=fork_server())
    try:
        pool.run([echo()])
        (pid,) = pool.idle_pids()

        def works_alone() -> bool:
            (reply,) = pool.run([echo(1)])
            mine = descendants()
            pool.close()
            return (
                reply.answer == {"value": 1}
                and pool.idle_pids() == []
                and pid not in mine
                and wait_until(lambda: all_gone(mine))
            )

        busy = threading.Thread(
            target=lambda: pool.run([{"do": "sleep", "seconds_asleep": 1.0}] * 2)
        )
        busy.start()  # the copy is made in the middle of another thread's batch
        time.sleep(0.1)
        assert in_forked_child(works_alone)
        busy.join(30)
        assert not busy.is_alive()
        assert pool.idle_pids() == [pid]  # undisturbed
    finally:
        pool.close()


@posix_only
def test_a_copy_forked_while_locks_are_held_is_not_stuck() -> None:
    pool = WorkerPool(num_workers=1, deadline_seconds=30.0, launcher=fork_server())
    try:
        pool.run([echo()])
        with pool._lock, pool._launcher._lock:  # type: ignore[attr-defined]
            assert in_forked_child(lambda: pool.run([echo(1)])[0].answer == {"value": 1})
        assert pool.run([echo(2)])[0].answer == {"value": 2}
    finally:
        pool.close()


def grade_in_child(grader: Grader, results: Any) -> None:
    results.put((first_verdicts(grader), first_verdicts(shared_grader())))


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("fork", marks=posix_only),
        "spawn",
        pytest.param("forkserver", marks=[posix_only, pytest.mark.slow]),
    ],
)
def test_a_grader_in_processes_of_multiprocessing(method: str) -> None:
    context = multiprocessing.get_context(method)
    with Grader() as grader:
        expected = first_verdicts(grader)
        shared_grader().compare("x+1", "1+x")
        results = context.Queue()
        child = context.Process(target=grade_in_child, args=(grader, results), daemon=True)
        child.start()
        assert results.get(timeout=120) == (expected, expected)
        child.join(30)
        assert child.exitcode == 0
        assert first_verdicts(grader) == expected == ["equal", "equal"]


def test_a_grader_is_pickled_as_its_settings(tmp_path: Path) -> None:
    policy = GradingPolicy(extraction="tag", deadline_seconds=1.5)
    with Grader(policy, num_workers=3, cache_size=7, store=tmp_path / "grades") as grader:
        copy = pickle.loads(pickle.dumps(grader))
        assert copy.policy == policy
        assert copy._settings == grader._settings
        assert copy.grade("<answer>5</answer>", "5").correct
        copy.close()


class GradedRows:
    """A data set whose rows are graded as they are read."""

    def __init__(self, grader: Grader) -> None:
        self.grader = grader

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> str:
        return self.grader.compare(f"x+{index}", f"{index}+x").verdict.value


@posix_only
@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_grader_in_the_workers_of_a_torch_data_loader(method: str) -> None:
    from torch.utils.data import DataLoader

    with Grader() as grader:
        grader.compare("x+1", "1+x")
        rows: Any = GradedRows(grader)
        loader = DataLoader(rows, num_workers=2, batch_size=4, multiprocessing_context=method)
        assert [verdict for batch in loader for verdict in batch] == ["equal"] * 16


@pytest.mark.slow
def test_a_notebook_kernel() -> None:
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client").KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        printed = []

        def note(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        client.execute_interactive(GRADE_AND_PRINT, timeout=120, output_hook=note)
        inside = "import asyncio\nprint(await asyncio.to_thread(lambda: grade('5', '5').verdict))"
        client.execute_interactive(inside, timeout=120, output_hook=note)
        assert "".join(printed) == "equal equal\nno_answer\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


PATIENT_SECONDS = 600.0
"""A cluster, its processes and their graders start at once here, on a machine that may be busy."""


def wait_for_workers() -> None:
    """Give this process's graders time to start; a worker that dies is noticed at once."""
    batch.START_SECONDS = PATIENT_SECONDS


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENT_SECONDS)
def test_ray_tasks_and_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(batch, "START_SECONDS", PATIENT_SECONDS)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
    )
    try:
        with Grader() as grader:
            expected = first_verdicts(grader)

            @ray.remote
            def graded(grader: Grader, n: int) -> tuple[list[str], str]:
                wait_for_workers()
                verdict = shared_grader().compare(f"x+{n}", f"{n}+x").verdict
                return first_verdicts(grader), verdict

            tasks = [graded.remote(grader, n) for n in range(8)]
            assert ray.get(tasks, timeout=PATIENT_SECONDS) == [(expected, Verdict.EQUAL)] * 8

            @ray.remote
            class Judge:
                def __init__(self) -> None:
                    wait_for_workers()
                    self.grader = Grader(num_workers=2)

                def judge(self, responses: list[str], golds: list[str]) -> list[str]:
                    return [one.verdict for one in self.grader.grade_batch(responses, golds)]

            judge = Judge.remote()
            responses = [rf"\boxed{{x+{n}}}" for n in range(20)]
            golds = [f"{n}+x" for n in range(20)]
            judged = judge.judge.remote(responses, golds)
            assert ray.get(judged, timeout=PATIENT_SECONDS) == ["equal"] * 20
    finally:
        ray.shutdown()


CTRL_C = """
    import sys, time
    sys.path[:] = {path!r}
    from hostile import echo, fork_server
    from workings.grading.grader import Grader
    from workings.grading.workers.pool import WorkerPool

    grader = Grader(num_workers=2, launcher=fork_server())
    {before}
    print("running", flush=True)
    {work}
    """


def interrupted(folder: Path, before: str, work: str) -> tuple[str, str, set[int], float]:
    """(stdout, stderr, the processes it had, seconds from Ctrl-C to its end)."""
    process = start_script(folder, CTRL_C.format(path=[*sys.path], before=before, work=work))
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    time.sleep(0.5)
    started = descendants(process.pid)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
    output, errors = process.communicate(timeout=60)
    seconds = time.monotonic() - start
    if "caught" not in output:
        assert process.returncode == -signal.SIGINT
    return output, errors, started, seconds


@posix_only
def test_ctrl_c_during_a_batch_ends_promptly_and_leaves_no_process(tmp_path: Path) -> None:
    responses = r"[rf'\boxed{{bomb+{n}x}}' for n in range(50)]"
    _, errors, started, seconds = interrupted(
        tmp_path, "grader.compare('y+x', '5+x')", f"grader.grade_batch({responses}, ['5+x'] * 50)"
    )
    assert len(started) >= 4
    assert all_gone(started)
    assert seconds < 20.0
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in errors


@posix_only
def test_ctrl_c_while_the_first_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "slow_library.py").write_text("import time\ndef warm_up(): time.sleep(600)")
    _, errors, started, seconds = interrupted(
        tmp_path,
        f"sys.path.append({str(tmp_path)!r}); from workings.grading.workers.fork_server import *; "
        "pool = WorkerPool(num_workers=1, deadline_seconds=5.0, "
        "launcher=ForkServer(handler='slow_library', memory_bytes=2 << 30))",
        "pool.run([echo()])",
    )
    assert len(started) == 1
    assert all_gone(started)
    assert seconds < 20.0
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


@posix_only
def test_after_ctrl_c_the_grader_goes_on(tmp_path: Path) -> None:
    output, errors, _, _ = interrupted(
        tmp_path,
        "grader.compare('y+x', '5+x')",
        r"""
    try:
        grader.grade(r"\boxed{bomb+x}", "5+x")
    except KeyboardInterrupt:
        print("caught", *[grader.compare(f"y+{n}x", "5+x").verdict for n in range(5)])
    """.strip(),
    )
    assert output == f"caught{' undecided' * 5}\n"
    assert errors == ""
