"""The command that serves the page: Streamlit, bound to loopback, that sends nothing anywhere."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path

from workings.errors import ConfigError, NotFound

HOST = "127.0.0.1"
USUAL_PORT = 8501
PAGE = Path(__file__).with_name("page.py")
OPTIONS = {
    "server.address": HOST,
    "browser.serverAddress": HOST,
    "browser.gatherUsageStats": "false",
    "server.showEmailPrompt": "false",
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    # Without it, a string that stands alone in page.py would be written on the page.
    "runner.magicEnabled": "false",
    "server.enableStaticServing": "false",
    "server.enableXsrfProtection": "true",
    "server.enableCORS": "true",
    "server.maxUploadSize": "1",
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "type",
    "client.showErrorLinks": "false",
    "logger.hideWelcomeMessage": "true",
    "logger.level": "warning",
    "global.developmentMode": "false",
    "theme.baseRadius": "small",
    "theme.showWidgetBorder": "true",
    "theme.light.primaryColor": "#00695c",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f5f6f6",
    "theme.light.textColor": "#1f2a2a",
    "theme.dark.primaryColor": "#4db6ac",
    "theme.dark.backgroundColor": "#14191a",
    "theme.dark.secondaryBackgroundColor": "#1e2526",
    "theme.dark.textColor": "#e4e9e9",
}
"""Given on the command line, so that no configuration file of the user's changes them."""


def check_installed() -> None:
    """Raise ConfigError where streamlit is missing."""
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError(
            "the viewer needs streamlit, which is not installed",
            hint="pip install -e '.[view]'",
        )


def check_folder(folder: Path) -> Path:
    """The folder, resolved; NotFound where there is none."""
    if not folder.is_dir():
        raise NotFound(f"no folder {folder}", hint="name one that holds runs, such as runs")
    return folder.resolve()


def free_port(asked: int | None) -> int:
    """The port asked for, else 8501, else any free one.

    ConfigError where the one asked for is taken.
    """
    if asked is not None:
        if not _is_free(asked):
            raise ConfigError(
                f"port {asked} of {HOST} is in use", hint="leave --port out to get a free one"
            )
        return asked
    if _is_free(USUAL_PORT):
        return USUAL_PORT
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def address(port: int) -> str:
    """Where the page is."""
    return f"http://{HOST}:{port}"


def server_command(
    folder: Path, *, port: int, open_browser: bool = False, tokenizer: Path | None = None
) -> list[str]:
    """The process to run: Streamlit with our page, its options, and the folder as argument.

    Only this machine's own names are answered, so that no other site can point its name here (DNS
    rebinding).
    """
    options = OPTIONS | {
        "server.port": str(port),
        "browser.serverPort": str(port),
        "server.headless": "false" if open_browser else "true",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    flags += [f"--server.allowedHosts={host}" for host in (HOST, "localhost")]
    more = [] if tokenizer is None else [str(tokenizer)]
    return [sys.executable, "-m", "streamlit", "run", str(PAGE), *flags, "--", str(folder), *more]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
