"""`workings wandb setup`: a key for W&B, and the file that says where runs are listed.

The key comes from the environment or is typed in, and is never written to a file of the project:
from WANDB_API_KEY wandb reads it by itself, and a key from elsewhere is handed to wandb's own
login, which keeps it in the user's netrc file.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.config.yaml_text import yaml_text
from workings.errors import ConfigError
from workings.tracking.wandb import log_in, netrc_file

READ_BY_WANDB, OF_EARLIER_SCRIPTS = "WANDB_API_KEY", "WANDB_KEY"
_KEY = re.compile(r"[A-Za-z0-9_-]{40,}")


def run(*, entity: str | None, project: str, output: Path, online: bool, force: bool) -> int:
    """Set W&B up; what was done is said line by line on stderr, the file goes to stdout."""
    text = settings_text(entity=entity, project=project, online=online)
    if output.is_file() and output.read_text(encoding="utf-8") != text and not force:
        raise ConfigError(f"{output} exists with other settings", hint="--force replaces it")
    origin, key = find_key()
    if origin == READ_BY_WANDB:
        write_note(f"the key is in {READ_BY_WANDB}, where wandb reads it; it is stored nowhere")
    else:
        place = _outside_of_the_project(netrc_file())
        log_in(key)
        write_note(f"the key from {origin} was handed to wandb, which keeps it in {place}")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    write_note(
        f"{output} says project {project}, "
        + (f"entity {entity}" if entity else "your own entity")
        + f", {'online' if online else 'offline'}; it holds no key. Use it as a second file: "
        f"workings grpo -c mine.yaml -c {output}"
    )
    write_data(str(output))
    return 0


def settings_text(*, entity: str | None, project: str, online: bool) -> str:
    """The settings of the tracker as YAML that refines a run."""
    tracking = {
        "wandb": True,
        "wandb_project": project,
        "wandb_entity": entity,
        "wandb_mode": "online" if online else "offline",
    }
    return yaml_text({"tracking": tracking})


def find_key() -> tuple[str, str]:
    """Where the key is from, and the key; ConfigError where there is none or it is no key.

    No message holds any part of it.
    """
    for name in (READ_BY_WANDB, OF_EARLIER_SCRIPTS):
        if os.environ.get(name):
            return name, _checked(os.environ[name], name)
    if not sys.stdin.isatty():
        raise ConfigError(
            f"no key: {READ_BY_WANDB} is not set, and there is no terminal to ask at",
            hint=f"export {READ_BY_WANDB}=..., or run this in a terminal; offline runs need no key",
        )
    typed = getpass.getpass("W&B key (https://wandb.ai/authorize; it is not shown): ", sys.stderr)
    return "the terminal", _checked(typed, "what was typed")


def _checked(key: str, origin: str) -> str:
    key = key.strip()
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"{origin} holds no W&B key: {len(key)} characters",
            hint="a key has 40 letters and digits or more; copy it whole",
        )
    return key


def _outside_of_the_project(place: Path) -> Path:
    """`place`, unless it lies in the folder that is worked in, whose files may be shared."""
    if place.resolve().is_relative_to(Path.cwd().resolve()) and Path.cwd() != Path.home():
        raise ConfigError(
            f"wandb would write the key to {place}, inside of this project",
            hint=f"set NETRC to a file elsewhere, or export {READ_BY_WANDB} and store no key",
        )
    return place
