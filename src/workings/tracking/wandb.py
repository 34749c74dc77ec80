"""Weights & Biases: the only file that imports `wandb`.

Offline runs need no account and no network; `workings wandb sync FOLDER` sends them later. Online
runs use WANDB_API_KEY, or the login that `workings wandb setup` or `wandb login` made; no key is
written to a file of a run or a project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from workings.errors import ConfigError

ID_FILE_NAME = "wandb_run_id.txt"
_OFFLINE = "offline-"
"""How wandb's names of the folders of offline runs begin."""
STEP_NAMES = {"train": "train_step", "timing": "train_step", "eval": "eval_step"}


class WandbSink:
    """The sink to W&B: train/* and timing/* against train_step, eval/* against eval_step.

    final/* goes to the run's summary. A resumed run keeps its id (in `wandb_run_id.txt`); W&B
    cannot drop rows, so steps that are repeated after a resume appear twice there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        project: str,
        name: str,
        entity: str | None = None,
        mode: Literal["online", "offline"] = "offline",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                "tracking.wandb=true needs the wandb package, which is not installed",
                hint="pip install workings[wandb], or set tracking.wandb=false",
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        id_file = folder / ID_FILE_NAME
        run_id = id_file.read_text(encoding="utf-8").strip() if id_file.exists() else None
        self._run = wandb.init(
            project=project,
            entity=entity,
            name=name,
            id=run_id,
            resume="allow" if run_id else None,
            mode=mode,
            dir=str(folder),
            config=dict(config or {}),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            reinit="create_new",
        )
        id_file.write_text(self._run.id + "\n", encoding="utf-8")
        for step_name in sorted(set(STEP_NAMES.values())):
            self._run.define_metric(step_name, hidden=True)
        for kind, step_name in STEP_NAMES.items():
            self._run.define_metric(f"{kind}/*", step_metric=step_name)

    def record(self, step: int, kind: str, metrics: Mapping[str, float], *, time: float) -> None:
        """Log one row with its own step metric."""
        if kind == "final":
            self._run.summary.update(dict(metrics))
        else:
            self._run.log({STEP_NAMES[kind]: step, **metrics})

    def truncate_after(self, step: int) -> None:
        """Do nothing: W&B keeps what it was sent."""

    def close(self, *, failed: bool = False) -> None:
        """Finish the run; a failed one is marked as such."""
        self._run.finish(exit_code=1 if failed else 0)


def offline_runs(folder: Path, *, again: bool = False) -> list[Path]:
    """The folders of offline runs in and below `folder` not sent yet; with `again` all of them."""
    places = {path.parent for path in folder.rglob("*.wandb")}
    offline = [place for place in places if place.resolve().name.startswith(_OFFLINE)]
    return sorted(
        place for place in offline if again or any(at is None for at in sync_marks(place).values())
    )


def sync_marks(folder: Path) -> dict[Path, int | None]:
    """Of every `.wandb` file of a run the time (ns) of wandb's mark that it was sent, or None.

    wandb leaves an empty `NAME.wandb.synced` beside a file that it has sent, and a new one whenever
    it sends the file again.
    """
    marks = {file: _mark(file) for file in sorted(folder.glob("*.wandb"))}
    return {
        file: mark.stat().st_mtime_ns if mark.is_file() else None for file, mark in marks.items()
    }


def remove_new_marks(folder: Path, *, before: Mapping[Path, int | None]) -> None:
    """Take away the marks that were set since `before`, so that the run counts as not sent."""
    for file, at in sync_marks(folder).items():
        if at is not None and at != before.get(file):
            _mark(file).unlink()


def sync_command(
    folder: Path, *, project: str | None, entity: str | None, again: bool
) -> list[str]:
    """wandb's own command line that sends one offline run."""
    options = ["--project", project] if project else []
    options += ["--entity", entity] if entity else []
    options += ["--include-synced"] if again else []
    return [sys.executable, "-m", "wandb", "sync", *options, str(folder)]


def log_in(key: str) -> None:
    """Hand the key to wandb, which keeps it where `wandb login` does (the user's netrc file)."""
    _wandb().login(key=key, relogin=True, verify=False)


def netrc_file() -> Path:
    """Where wandb keeps keys: $NETRC, or .netrc in the user's home."""
    return Path(os.environ.get("NETRC") or Path.home() / ".netrc").expanduser()


def _mark(file: Path) -> Path:
    return file.with_name(f"{file.name}.synced")


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(
            "this needs the wandb package, which is not installed",
            hint="pip install workings[wandb]",
        ) from error
    return wandb
