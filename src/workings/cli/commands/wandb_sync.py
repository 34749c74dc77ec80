"""`workings wandb sync`: send runs that were recorded offline, by wandb's own command."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.errors import DataError
from workings.tracking.wandb import offline_runs, sync_command


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
    failed = []
    for place in found:
        if not dry_run:
            command = sync_command(place, project=project, entity=entity, again=again)
            # What wandb says is progress, so it goes to stderr.
            code = subprocess.run(command, stdout=2, check=False).returncode
            if code != 0:
                failed.append(place)
                write_note(f"{place}: wandb sync ended with exit code {code}")
                continue
        write_data(str(place))
    if failed:
        write_note(
            f"{len(failed)} of {len(found)} runs were not sent; the same command tries again"
        )
    return 1 if failed else 0
