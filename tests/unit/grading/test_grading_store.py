"""Grades in an SQLite file: what is kept, for whom, and what a wrong file does."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from pathlib import Path

import pytest

from workings.errors import ConfigError, GradingError
from workings.grading import store as store_module
from workings.grading.grader import Grader
from workings.grading.memory import GradeMemory
from workings.grading.policy import GradingPolicy
from workings.grading.store import GradeStore
from workings.types import Grade, Verdict

POLICY = GradingPolicy()
EQUAL = Grade(
    verdict=Verdict.EQUAL, tier="number", reason="the same", extracted="0.5", milliseconds=1.5
)


def num_rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM grades").fetchone()
    connection.close()
    return int(count)


def test_a_grade_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "grades.sqlite"
    first = GradeStore(path, POLICY)
    assert first.get("0.5", "1/2") is None
    first.put([("0.5", "1/2", EQUAL)])
    assert first.get("0.5", "1/2") == EQUAL
    first.close()
    second = GradeStore(path, POLICY)
    assert second.get("0.5", "1/2") == EQUAL
    assert second.get("1/2", "0.5") is None
    second.close()


def test_policy_and_grader_version_are_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grades.sqlite"
    one = GradeStore(path, POLICY)
    one.put([("0.5", "1/2", EQUAL)])
    other = GradeStore(path, GradingPolicy(extraction="tag"))
    assert other.get("0.5", "1/2") is None
    monkeypatch.setattr(store_module, "GRADER_VERSION", store_module.GRADER_VERSION + 1)
    later = GradeStore(path, POLICY)
    assert later.get("0.5", "1/2") is None
    for store in (one, other, later):
        store.close()


def test_any_text_may_be_asked_for(tmp_path: Path) -> None:
    store = GradeStore(tmp_path / "grades.sqlite", POLICY)
    texts = ["\x00", "a\x00b", "☃", "'; DROP TABLE grades; --", "\ud800", ""]
    store.put([(text, "gold", EQUAL) for text in texts])
    assert [store.get(text, "gold") is not None for text in texts] == [
        True, True, True, True, False, True
    ]  # fmt: skip
    assert store.get("a", "gold") is None
    store.close()


def test_timeouts_errors_and_overlong_answers_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "grades.sqlite"
    memory = GradeMemory(GradingPolicy(max_answer_length=10), size=10, path=path)
    found = [("1", "g", Grade(verdict=verdict)) for verdict in Verdict]
    memory.put([(f"a{n}", gold, grade) for n, (_, gold, grade) in enumerate(found)])
    memory.put([("x" * 11, "g", EQUAL)])
    kept = {grade.verdict for n, (_, gold, grade) in enumerate(found) if memory.get(f"a{n}", gold)}
    assert set(Verdict) - kept == {Verdict.TIMEOUT, Verdict.INTERNAL_ERROR}
    assert memory.get("x" * 11, "g") is None
    assert num_rows(path) == len(Verdict) - 2
    memory.close()


def test_long_answers_are_kept_in_the_file_alone(tmp_path: Path) -> None:
    for path in (None, tmp_path / "grades.sqlite"):
        memory = GradeMemory(POLICY, size=10, path=path)
        memory.put([("x" * 512, "g", EQUAL), ("x" * 513, "g", EQUAL)])
        assert memory.get("x" * 512, "g") is not None
        assert (memory.get("x" * 513, "g") is not None) is (path is not None)
        memory.close()


def test_a_grader_reads_what_another_wrote(tmp_path: Path) -> None:
    path = tmp_path / "grades.sqlite"
    responses, golds = [r"\boxed{0.5}", r"\boxed{x+1}", "no box"] * 2, ["1/2", "1+x", "3"] * 2
    with Grader(store=path) as grader:
        first = grader.grade_batch(responses, golds)
    assert num_rows(path) == 2  # a missing answer is no pair
    with Grader(store=str(path)) as grader:
        assert grader.grade_batch(responses, golds) == first
        assert grader._pool.idle_pids() == []  # no worker was needed
    with pytest.raises(GradingError, match="the grade store is closed"):
        grader.grade(r"\boxed{7}", "8")


def test_without_a_store_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Grader() as grader:
        grader.grade(r"\boxed{0.5}", "1/2")
    assert list(tmp_path.iterdir()) == []


def write_many(path: Path, number: int) -> None:
    store = GradeStore(path, POLICY)
    for n in range(20):
        store.put([(f"{number}-{n}-{m}", "gold", EQUAL) for m in range(5)])
        assert store.get(f"{number}-{n}-0", "gold") is not None
    store.close()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_many_processes_write_at_once(method: str, tmp_path: Path) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    path = tmp_path / "grades.sqlite"
    context = multiprocessing.get_context(method)
    writers = [context.Process(target=write_many, args=(path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert num_rows(path) == 4 * 20 * 5


def test_many_threads_share_a_store(tmp_path: Path) -> None:
    store = GradeStore(tmp_path / "grades.sqlite", POLICY)
    missing: list[str] = []

    def work(number: int) -> None:
        for n in range(50):
            store.put([(f"{number}-{n}", "gold", EQUAL)])
            if store.get(f"{number}-{n}", "gold") is None:
                missing.append(f"{number}-{n}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert missing == []
    assert num_rows(tmp_path / "grades.sqlite") == 400
    store.close()


def _use(store: GradeStore) -> None:
    assert store.get("0.5", "1/2") == EQUAL
    store.put([("2", "2", EQUAL)])
    store.close()


def test_a_forked_copy_opens_the_file_for_itself(tmp_path: Path) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system cannot fork")
    store = GradeStore(tmp_path / "grades.sqlite", POLICY)
    store.put([("0.5", "1/2", EQUAL)])
    child = multiprocessing.get_context("fork").Process(target=_use, args=(store,))
    with store._lock:  # as if another thread were at work when the fork came
        child.start()
    child.join(60)
    assert child.exitcode == 0
    assert store.get("2", "2") is not None
    store.close()


def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("These are my notes. " * 100)
    with pytest.raises(ConfigError, match=r"notes\.txt cannot be opened: file is not a database"):
        GradeStore(text, POLICY)
    assert text.read_text() == "These are my notes. " * 100
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(ConfigError, match=r"other\.sqlite is an SQLite file, but no grade store"):
        Grader(store=other)
    assert other.read_bytes() == before
    with pytest.raises(ConfigError, match="cannot be opened: unable to open database file") as e:
        GradeStore(tmp_path / "no" / "folder.sqlite", POLICY)
    assert "a folder that exists" in (e.value.hint or "")


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grades.sqlite"
    GradeStore(path, POLICY).close()
    monkeypatch.setattr(store_module, "SCHEMA_VERSION", 2)
    with pytest.raises(ConfigError, match="has the format 1; this version of the package writes 2"):
        GradeStore(path, POLICY)


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "grades.sqlite"
    store = GradeStore(path, POLICY)
    store.put([(f"answer {n} " * 50, "gold", EQUAL) for n in range(500)])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xa5" * (len(content) - 4096 * 3)
    path.write_bytes(content)
    damaged = GradeStore(path, POLICY)
    with pytest.raises(GradingError, match=r"grades\.sqlite failed: .*malformed") as caught:
        damaged.put([(f"answer {n} " * 50, "gold", EQUAL) for n in range(500)])
    assert caught.value.hint == "if it is damaged, delete it: it only saves time"
    with pytest.raises(GradingError, match="malformed"):
        [damaged.get(f"answer {n} " * 50, "gold") for n in range(500)]
    damaged.close()


def test_a_row_that_no_grader_wrote_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "grades.sqlite"
    store = GradeStore(path, POLICY)
    store.put([("0.5", "1/2", EQUAL)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE grades SET verdict = 'perhaps'")
    connection.commit()
    connection.close()
    with pytest.raises(GradingError, match="'perhaps' is not a valid Verdict"):
        store.get("0.5", "1/2")
    store.close()
