"""`workings wandb sync`: send runs that were recorded offline, by wandb's own command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.errors import DataError
from workings.tracking.wandb import offline_runs, remove_new_marks, sync_command, sync_marks

_ERROR = "wandb: ERROR"
"""How the lines begin in which wandb tells of an error."""


def run(
    folders: Sequence[Path],
    *,
    project: str | None,
    entity: str | None,
    again: bool,
    dry_run: bool,
) -> int:
    """Send every offline run below the folders that was not sent yet; 1 where one failed.

    The folders of the runs that were sent, or with `dry_run` would be, go to stdout.
    """
    found: list[Path] = []
    for folder in folders:
        place = folder.expanduser()
        if not place.is_dir():
            raise DataError(f"no folder {place}")
        below = offline_runs(place, again=again)
        if not below:
            sent = len(offline_runs(place, again=True))
            write_note(
                f"{place}: {sent} offline runs, all sent already; --again sends them once more"
                if sent
                else f"{place}: no offline run; a run makes one with tracking.wandb=true"
            )
        found += [one for one in below if one not in found]
    failed = {}
    for place in found:
        command = sync_command(place, project=project, entity=entity, again=again)
        reason = "" if dry_run else _send(place, command)
        if reason:
            failed[place] = reason
        else:
            write_data(str(place))
    for place, reason in failed.items():
        write_note(f"{place}: {reason}")
    if failed:
        write_note(
            f"{len(failed)} of {len(found)} runs were not sent; the same command tries again"
        )
    return 1 if failed else 0


def _send(place: Path, command: Sequence[str]) -> str:
    """Why the run was not sent, with what wandb said; empty where it was sent.

    wandb ends with exit code 0 also where nothing was sent, and marks a run as sent also where a
    part of it was refused. Such a run loses its new mark.
    """
    before = sync_marks(place)
    code, said = _run_aloud(command)
    untouched = [file for file, at in sync_marks(place).items() if at in (None, before.get(file))]
    told = any(line.startswith(_ERROR) for line in said)
    if code == 0 and not untouched and not told:
        return ""
    remove_new_marks(place, before=before)
    reason = f"wandb sync ended with exit code {code}"
    if code == 0:
        reason += " but marked nothing as sent" if untouched else " but told of an error"
    return f"{reason}; wandb said: {_gist(said)}"


def _run_aloud(command: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code and the lines that were said, which also go to stderr: they are progress."""
    said = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.strip())
            sys.stderr.write(line)
            sys.stderr.flush()
    return process.returncode, said


def _gist(said: Sequence[str]) -> str:
    """The lines that speak of an error, else the last one.

    >>> _gist(["wandb: Syncing 1 run(s):", "wandb: ERROR no access", "wandb: done"])
    'ERROR no access'
    """
    lines = [line.removeprefix("wandb: ") for line in said if line]
    errors = [line for line in lines if "error" in line.lower()]
    return " | ".join(errors[-3:] or lines[-1:]) or "nothing"
