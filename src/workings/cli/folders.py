"""A run's folder: made once, described by its files, never overwritten in silence."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from workings.config.dump import dump_yaml
from workings.config.kinds import RecordedRun
from workings.config.sections import Run
from workings.config.sources import read_yaml
from workings.errors import ConfigError
from workings.tracking.environment import environment_report
from workings.tracking.whole_file import write_whole
from workings.training.checkpointer import RunPaths

CONFIG, ENVIRONMENT = "config.yaml", "environment.json"


def run_folder(run: Run) -> Path:
    """Where a run is kept, whether it has been started or not."""
    return Path(run.output_dir).expanduser() / run.name


def open_folder(
    run: RecordedRun, *, resume: str | None, device: dict[str, Any] | None = None
) -> tuple[RunPaths, list[str]]:
    """The run's paths, and notes on settings that changed since it was started.

    Without `resume` the folder must be new; with it, it must be of a run of the same kind. The
    resolved configuration and the environment are written into it.
    """
    folder = run_folder(run)
    text = dump_yaml(run)
    stored = folder / CONFIG
    notes = []
    if stored.is_file():
        if resume is None:
            raise ConfigError(
                f"the run {folder} exists",
                hint="--resume goes on with it; name=... starts another beside it",
            )
        kind = read_yaml(stored).get("kind")
        if kind != run.kind:
            raise ConfigError(
                f"{folder} holds a run of kind {kind}, and this one is of kind {run.kind}",
                hint="give this run a name of its own, name=...",
            )
        notes = changed_settings(stored.read_text(encoding="utf-8"), text)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(stored, text)
    report = json.dumps(environment_report(device=device), indent=2)
    write_whole(folder / ENVIRONMENT, report + "\n")
    return RunPaths(folder=folder, layout=run.layout), notes


def changed_settings(before: str, after: str) -> list[str]:
    """One line per line of the configuration that is not as it was."""
    changes = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return [f"changed since the run was started: {line}" for line in changes]


def model_card(run: Run, *, kind: str, base: str) -> str:
    """The README.md of a saved model: what it is, from what, and how it was made."""
    return (
        f"---\nbase_model: {base}\nlibrary_name: transformers\ntags: [workings, {kind}]\n---\n\n"
        f"# {run.name}\n\n"
        f"{base}, trained with Workings ({kind}, seed {run.seed}). The run's resolved settings are "
        f"below; the same file runs it again: `workings {kind} -c config.yaml`.\n\n"
        f"```yaml\n{dump_yaml(run)}```\n"  # type: ignore[arg-type]
    )
