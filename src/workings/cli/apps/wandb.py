"""`workings wandb`: set up, and offline runs sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workings.cli.apps.shared import (
    hand_over,
)

app = typer.Typer(help="Weights & Biases: set it up, send offline runs.", rich_markup_mode=None)


@app.command("setup")
def wandb_setup(
    entity: Annotated[
        str | None, typer.Option("--entity", help="Whose project. Default: your own.")
    ] = None,
    project: Annotated[str, typer.Option("--project", help="Where runs are listed.")] = "workings",
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="Settings to use with -c.")
    ] = Path("wandb.yaml"),
    offline: Annotated[
        bool, typer.Option("--offline", help="Record offline; `workings wandb sync` sends.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> int:
    """Take a key, and write the tracker's settings.

    The key comes from WANDB_API_KEY or WANDB_KEY, else it is asked for; no file of the project
    holds it.
    """
    return hand_over(
        "wandb_setup",
        entity=entity,
        project=project,
        output=output,
        online=not offline,
        force=force,
    )


@app.command("sync")
def wandb_sync(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Runs, or a tree.")],
    project: Annotated[str | None, typer.Option("--project", help="Another project.")] = None,
    entity: Annotated[str | None, typer.Option("--entity", help="Another entity.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was sent before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
) -> int:
    """Send runs that were recorded offline.

    Every offline run below the folders, by wandb's own `wandb sync`.
    """
    return hand_over(
        "wandb_sync", folders, project=project, entity=entity, again=again, dry_run=dry_run
    )
