"""An inference server in a process of its own, for tests that kill it.

Processes come from a fork server that has the package loaded, so each starts in a moment.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

LOADED = [
    "workings.cli.commands.serve",
    "workings.config.kinds",
    "workings.config.compose",
    "hydra",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "torch.distributed",
]
"""What the fork server imports once for all servers."""
START_SECONDS = 120.0


def run_server(arguments: list[str], address: Connection, errors: str) -> None:
    """`workings serve`; its address goes into the pipe, what it says on stderr into a file."""
    from workings.cli.commands import serve
    from workings.cli.main import main

    sys.stderr = open(errors, "w", buffering=1)  # noqa: SIM115 - until the process ends
    serve.write_data = address.send  # type: ignore[assignment]
    os.environ.pop("WORKINGS_SERVER_TOKEN", None)
    sys.exit(main(["serve", *arguments]))


class Server:
    """A server that this test started, and its address."""

    def __init__(self, model: Path, errors: Path, *, port: int = 0) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        self._address, there = context.Pipe(duplex=False)
        self.errors = errors
        arguments = [
            *(f"model.name_or_path={model}", f"port={port}", "num_threads=1"),
            *("engine.name=transformers", "sync_seconds=20"),
        ]
        self.process = context.Process(target=run_server, args=(arguments, there, str(errors)))
        self.process.start()
        there.close()
        if not self._address.poll(START_SECONDS):
            raise TimeoutError(f"the server did not start: {errors.read_text()}")
        self.url: str = self._address.recv()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Kill it, however it is."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.join()
