"""The file of verdicts: written to the side, gone on with after a stop, renamed when it is whole.

responses.graded.jsonl.part         verdicts so far, one JSON object per line
responses.graded.jsonl.part.json    the settings that they were reached with
responses.graded.jsonl              all verdicts
responses.graded.summary.json       counts, accuracies and the settings
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from workings.errors import DataError
from workings.tracking.whole_file import write_whole

ENDING = ".graded.jsonl"
SUMMARY_ENDING = ".summary.json"
NOT_COMPARED = frozenset({"file", "workings"})
"""Settings that no verdict depends on."""

Settings = Mapping[str, Any]
# JSON escapes C0 controls by itself. C1 controls, controls of direction and lone surrogates would
# otherwise stand in the file as they came from the model.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def output_path(source: Path) -> Path:
    """Where the verdicts on a file go by default.

    >>> output_path(Path("runs/a/responses.parquet")).as_posix()
    'runs/a/responses.graded.jsonl'
    """
    return source.with_name(source.stem + ENDING)


def summary_path(output: Path) -> Path:
    """The file of counts beside a file of verdicts.

    >>> summary_path(Path("a.graded.jsonl")).name, summary_path(Path("verdicts")).name
    ('a.graded.summary.json', 'verdicts.summary.json')
    """
    return output.with_name(output.name.removesuffix(".jsonl") + SUMMARY_ENDING)


def json_line(record: Mapping[str, object]) -> bytes:
    r"""One line of JSON that is legible, safe to print and valid UTF-8.

    >>> json_line({"text": "是\x1b\x9b\ud83d"})
    b'{"text": "\xe6\x98\xaf\\u001b\\u009b\\ud83d"}\n'
    """
    text = json.dumps(record, ensure_ascii=False, default=_plain)
    return (_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n").encode()


def is_finished(output: Path, settings: Settings, *, fresh: bool) -> bool:
    """True where `output` is whole and was made with these settings.

    DataError where it holds something else, which only `fresh` may replace.
    """
    if fresh or not output.exists():
        return False
    file = summary_path(output)
    if not file.is_file():
        raise DataError(
            f"{output} exists, and {file.name} beside it, which would say what it is, does not",
            hint="--fresh replaces it, --out NAME writes another",
        )
    _refuse_other_settings(output, _read_json(file).get("settings", {}), settings)
    return True


def read_records(path: Path, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The verdicts in a file, of its first `limit` lines or all; DataError for a damaged line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if limit is not None and number > limit:
                return
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict) or "index" not in record:
                raise DataError(
                    f"{path}, line {number} is no verdict: the file is damaged",
                    hint="--fresh begins anew",
                )
            yield record


class GradedFile:
    """An output under way: `num_done` lines of an earlier start, and those that are added.

    Use it with `with`; leaving it by an exception keeps what was written for the next start.
    """

    def __init__(self, output: Path, settings: Settings, *, fresh: bool) -> None:
        self.output = output
        self._part = output.with_name(output.name + ".part")
        self._state = output.with_name(self._part.name + ".json")
        output.parent.mkdir(parents=True, exist_ok=True)
        self._file = _opened_alone(self._part)
        try:
            self._begin(settings, fresh=fresh)
            self.num_done = _cut_to_whole_lines(self._file)
        except BaseException:
            self._file.close()
            raise

    def earlier_records(self) -> Iterator[dict[str, Any]]:
        """The lines of the earlier start."""
        yield from read_records(self._part, limit=self.num_done)

    def write(self, lines: bytes) -> None:
        """Append whole lines; they outlive the process from here on."""
        self._file.write(lines)
        self._file.flush()

    def finish(self, summary: Mapping[str, object]) -> None:
        """Make the output what it is called, with its summary beside it."""
        os.fsync(self._file.fileno())
        self._file.close()
        # A kill between two of these lines leaves a whole .part, from which a start finishes.
        self.output.unlink(missing_ok=True)
        _write_json(summary_path(self.output), summary)
        self._part.replace(self.output)
        self._state.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop writing; what is there is kept."""
        self._file.close()

    def __enter__(self) -> GradedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, settings: Settings, *, fresh: bool) -> None:
        """Take up what is there, or empty the file and say with what settings it is filled."""
        if not fresh and self._state.is_file():
            _refuse_other_settings(self._part, _read_json(self._state), settings)
        elif not fresh and self._part.stat().st_size:
            raise DataError(
                f"{self._part} exists, and {self._state.name}, which would say what it is, does "
                "not",
                hint="--fresh begins anew, --out NAME writes another",
            )
        else:
            self._file.truncate(0)
            _write_json(self._state, settings)


def _refuse_other_settings(path: Path, before: Settings, now: Settings) -> None:
    old, new = _flat(before), _flat(now)
    changed = [
        f"{name} was {_short(old.get(name))} and is {_short(new.get(name))}"
        for name in dict.fromkeys([*old, *new])
        if name not in NOT_COMPARED and old.get(name) != new.get(name)
    ]
    if changed:
        raise DataError(
            f"{path} was made with other settings: {'; '.join(changed)}",
            hint="--fresh grades everything anew into the same file, --out NAME into another",
        )


def _flat(settings: Settings) -> dict[str, Any]:
    """Settings by their dotted names.

    >>> _flat({"policy": {"extraction": "tag"}, "bare": False})
    {'policy.extraction': 'tag', 'bare': False}
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{key}" if key else name: one for key, one in inner.items()}
    return flat


def _short(value: object) -> str:
    """A setting in a message; of a checksum the beginning.

    >>> _short("a" * 64), _short(None), _short(["kind", "level"]), _short([])
    ('aaaaaaaaaaaa', 'none', 'kind, level', 'none')
    """
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if value in (None, ""):
        return "none"
    return str(value)[:12] if re.fullmatch("[0-9a-f]{64}", str(value)) else str(value)


def _opened_alone(path: Path) -> BinaryIO:
    """The file open for appending and reading, and by no other process of this command."""
    file = path.open("a+b")
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise DataError(
                f"another process is writing {path}", hint="wait for it, or choose another --out"
            ) from error
    return file


def _cut_to_whole_lines(file: BinaryIO) -> int:
    """How many whole lines there are; what a kill left of another one is cut off."""
    file.seek(0)
    lines = end = position = 0
    while block := file.read(1 << 20):
        lines += block.count(b"\n")
        last = block.rfind(b"\n")
        end = position + last + 1 if last >= 0 else end
        position += len(block)
    file.truncate(end)
    file.seek(end)
    return lines


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="--fresh begins anew") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} is not what this command writes", hint="--fresh begins anew")
    return value


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: object) -> object:
    """Whatever JSON has no form for (a date, bytes) as its text."""
    return str(value)
