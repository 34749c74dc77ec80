"""Grades in an SQLite file, shared by threads, processes and runs.

    settings  id, text                      one row for each policy and grader version
    grades    settings, gold, answer -> verdict, tier, reason, milliseconds

The file only saves time: it may be deleted whenever no run uses it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from workings.errors import ConfigError, GradingError
from workings.grading.forks import renew_after_fork
from workings.grading.policy import GRADER_VERSION, GradingPolicy
from workings.types import Grade, Verdict

APPLICATION_ID = 0x57_4F_52_4B
"""Marks a file as ours ("WORK")."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
"""Longest wait for another process that writes."""

_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE IF NOT EXISTS settings (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS grades (
    settings INTEGER NOT NULL REFERENCES settings,
    gold TEXT NOT NULL,
    answer TEXT NOT NULL,
    verdict TEXT NOT NULL,
    tier TEXT,
    reason TEXT,
    milliseconds REAL NOT NULL,
    PRIMARY KEY (settings, gold, answer)
) WITHOUT ROWID;
COMMIT;
"""
_FROM_PARENT: list[sqlite3.Connection] = []
"""Connections that came with a fork: SQLite forbids to use them, and to close them."""


class GradeStore:
    """The grades under one policy and this version of the grader.

    ConfigError where the file cannot be opened or is something else; GradingError where it fails
    later.
    """

    def __init__(self, path: Path, policy: GradingPolicy) -> None:
        self._path = path
        self._settings_text = json.dumps(
            {"grader_version": GRADER_VERSION, **asdict(policy)}, sort_keys=True
        )
        self._lock = threading.Lock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._settings = 0
        self._open()
        renew_after_fork(self)

    def get(self, answer: str, gold: str) -> Grade | None:
        """The grade of the pair, None where it is not known."""
        if not (_is_storable(answer) and _is_storable(gold)):
            return None
        with self._lock:
            connection = self._usable()
            try:
                row = connection.execute(
                    "SELECT verdict, tier, reason, milliseconds FROM grades"
                    " WHERE settings = ? AND gold = ? AND answer = ?",
                    (self._settings, gold, answer),
                ).fetchone()
                if row is None:
                    return None
                verdict, tier, reason, milliseconds = row
                return Grade(
                    verdict=Verdict(verdict),
                    tier=tier,
                    reason=reason,
                    extracted=answer,
                    milliseconds=milliseconds,
                )
            except (sqlite3.Error, ValueError) as error:
                raise self._failure(error) from error

    def put(self, found: Sequence[tuple[str, str, Grade]]) -> None:
        """Keep the grades of these (answer, gold) pairs, all in one transaction."""
        rows = [
            (self._settings, gold, answer, grade.verdict.value, grade.tier, grade.reason,
             grade.milliseconds)
            for answer, gold, grade in found
            if _is_storable(answer) and _is_storable(gold) and _is_storable(grade.reason or "")
        ]  # fmt: skip
        with self._lock:
            connection = self._usable()
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(
                        "INSERT OR REPLACE INTO grades VALUES (?, ?, ?, ?, ?, ?, ?)", rows
                    )
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def close(self) -> None:
        """Close the file; the store is not usable afterwards."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def renew(self) -> None:
        """Open the file anew in a forked child, on first use."""
        self._lock = threading.Lock()
        if self._connection is not None:
            _FROM_PARENT.append(self._connection)
            self._connection = None

    def _usable(self) -> sqlite3.Connection:
        if self._closed:
            raise GradingError("the grade store is closed", hint="close it after its last use")
        return self._connection or self._open()

    def _open(self) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            is_new = self._check_kind(connection)
            _use_write_ahead_log(connection)
            if is_new:
                connection.executescript(_SCHEMA)
            self._settings = _settings_number(connection, self._settings_text)
        except (sqlite3.Error, ConfigError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"the grade store {self._path} cannot be opened: {error}",
                hint="name a file in a folder that exists, or one that a grader has written",
            ) from error
        self._connection = connection
        return connection

    def _check_kind(self, connection: sqlite3.Connection) -> bool:
        """True for a new file, False for one of ours, ConfigError for any other."""
        connection.execute("BEGIN")  # all three as of one moment: another process may create it now
        (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("COMMIT")
        if num_tables and application != APPLICATION_ID:
            raise ConfigError(
                f"{self._path} is an SQLite file, but no grade store",
                hint="name another file; this one is left as it is",
            )
        if num_tables and version != SCHEMA_VERSION:
            raise ConfigError(
                f"the grade store {self._path} has the format {version}; this version of the "
                f"package writes {SCHEMA_VERSION}",
                hint="name another file, or delete this one: it only saves time",
            )
        return bool(num_tables == 0)

    def _failure(self, error: Exception) -> GradingError:
        return GradingError(
            f"the grade store {self._path} failed: {error}",
            hint="if it is damaged, delete it: it only saves time",
        )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at once; two processes may ask for it at the same moment."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")


def _settings_number(connection: sqlite3.Connection, text: str) -> int:
    for _ in range(2):  # another process may write the same row first
        row = connection.execute("SELECT id FROM settings WHERE text = ?", (text,)).fetchone()
        if row is not None:
            return int(row[0])
        connection.execute("INSERT OR IGNORE INTO settings (text) VALUES (?)", (text,))
    raise sqlite3.DatabaseError("a row was written and is not there")


def _is_storable(text: str) -> bool:
    """False for lone surrogates, which are no text to SQLite."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
