"""One trainer's HTTP connection to an inference server; every failure names the server."""

from __future__ import annotations

import http.client
import socket
from typing import Any
from urllib.parse import urlsplit

from workings.errors import ConfigError, EngineError, EngineMemoryError, said
from workings.rollout.server.http import CONTENT_TYPE, HEADER, MAX_BODY_BYTES
from workings.rollout.server.wire import pack, unpack

ANSWER_SECONDS = 30.0
"""Longest silence of a server beyond what it was asked to wait."""
LOST = 410
"""Status of a server that does not know the trainer (any more)."""


class LostSession(EngineError):
    """The server does not know this trainer any more."""


class Unreachable(EngineError):
    """The server did not answer, and has told nothing."""


class Connection:
    """Calls of an inference server.

    Args:
        url: "http://HOST:PORT".
        token: sent with every request, None for none.
    """

    def __init__(self, url: str, *, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.path:
            raise ConfigError(
                f"engine.server_url={url!r}; expected http://HOST:PORT",
                hint="`workings serve` prints its address",
            )
        self.host, self.port = parts.hostname, parts.port
        self._headers = {HEADER: "1", "Content-Type": CONTENT_TYPE}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @property
    def name(self) -> str:
        """How messages call the server."""
        return f"the inference server at {self.host}:{self.port}"

    def health(self) -> dict[str, Any]:
        """What the server is and does."""
        answer = self._exchange("GET", "/health", b"", ANSWER_SECONDS)
        return unpack(answer)[0]

    def post(self, path: str, *, seconds: float = 0.0, **header: Any) -> bytes:
        """The body of the answer; empty where the server has none yet.

        `seconds` is how long the server was asked to wait for one.
        """
        return self.send(path, pack({**header, "seconds": seconds}), seconds=seconds)

    def send(self, path: str, body: bytes, *, seconds: float = 0.0) -> bytes:
        """As `post`, with a body of one's own."""
        if len(body) > MAX_BODY_BYTES:
            raise EngineError(
                f"a batch of {len(body) >> 20} MiB is more than {self.name} takes at once",
                hint="sample fewer prompts at once",
            )
        return self._exchange("POST", path, body, ANSWER_SECONDS + seconds)

    def local_address(self) -> str:
        """This host's address on the way to the server."""
        with socket.create_connection((self.host, self.port), timeout=ANSWER_SECONDS) as link:
            return str(link.getsockname()[0])

    def _exchange(self, method: str, path: str, body: bytes, seconds: float) -> bytes:
        link = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            link.request(method, path, body=body, headers=self._headers)
            answer = link.getresponse()
            content = answer.read()
        except TimeoutError as error:
            raise Unreachable(
                f"{self.name} did not answer to {path} within {seconds:g} s",
                hint="it hangs, or the network between drops packets; restart it and go on with "
                "--resume",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"{self.name} cannot be reached ({path}): {said(error)}",
                hint="start it with `workings serve`, or see its output for why it ended; then go "
                "on with --resume",
            ) from error
        finally:
            link.close()
        if answer.status < 300:
            return content
        raise self._refusal(answer.status, content)

    def _refusal(self, status: int, content: bytes) -> EngineError:
        try:
            header, _ = unpack(content)
            message, hint = str(header["message"]), header.get("hint")
        except (EngineError, KeyError):
            return EngineError(
                f"{self.name} answered with HTTP status {status}; is it `workings serve`?",
                hint=f"look at what runs on port {self.port}",
            )
        message = f"{self.name}: {message}"
        if status == LOST:
            return LostSession(message, hint=hint)
        # A server of an earlier version does not say whether its memory ran out.
        kind = EngineMemoryError if header.get("memory") else EngineError
        return kind(message, hint=hint)
