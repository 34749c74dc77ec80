"""`workings view`: the page with the curves, benchmarks and responses of a folder of runs."""

from __future__ import annotations

import os
from pathlib import Path

from workings.cli.console import write_data, write_note
from workings.errors import NotFound
from workings.viewer.server import (
    address,
    check_folder,
    check_installed,
    free_port,
    server_command,
)


def run(folder: Path, *, port: int | None, open_browser: bool, tokenizer: Path | None) -> int:
    """Serve the page until Ctrl-C; its address goes to stdout."""
    root = check_folder(folder.expanduser())
    if tokenizer is not None:
        tokenizer = tokenizer.expanduser().resolve()
        if not tokenizer.exists():
            raise NotFound(f"no tokenizer at {tokenizer}")
    check_installed()
    chosen = free_port(port)
    command = server_command(root, port=chosen, open_browser=open_browser, tokenizer=tokenizer)
    write_note(f"{root}, read-only, for this machine alone; Ctrl-C ends it")
    write_data(address(chosen))
    # The server takes this process's place, and with it Ctrl-C and whatever ends it.
    os.execv(command[0], command)
