"""The HTTP side of an inference server: paths to `Service`, and what it refuses before that.

Only this package's own client is served: every request carries a header of its own (a web page
cannot send one across origins), a bounded body, and the token where the server has one.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workings.errors import WorkingsError, is_out_of_memory
from workings.rollout.server.service import Refused, Service, Session
from workings.rollout.server.wire import pack, pack_samples, unpack, unpack_requests

HEADER = "X-Workings"
CONTENT_TYPE = "application/x-workings"
MAX_BODY_BYTES = 256 << 20
MAX_WAIT_SECONDS = 20.0
MAX_CONNECTIONS = 64
READ_SECONDS = 60.0

Body = tuple[dict[str, Any], list[Any]]


class InferenceServer(ThreadingHTTPServer):
    """Listens for the service's trainer.

    Args:
        host, port: where; port 0 takes a free one.
        token: what requests have to carry, None for no token.
    """

    daemon_threads = True
    # Where a crashed server left connections behind, the next one can start at once.
    allow_reuse_address = True

    def __init__(self, service: Service, *, host: str, port: int, token: str | None) -> None:
        super().__init__((host, port), _Handler)
        self.service = service
        self.token = token
        self.places = threading.BoundedSemaphore(MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        """Address for trainers on this host."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS
    server: InferenceServer

    def do_GET(self) -> None:
        self._answer({"/health": lambda _: self.server.service.health()})

    def do_POST(self) -> None:
        self._answer(
            {
                "/claim": self._claim,
                "/alive": self._with_session(lambda session, _: {}),
                "/release": self._with_session(self._release),
                "/submit": self._with_session(self._submit),
                "/call": self._with_session(self._call),
                "/collect": self._with_session(self._collect),
                "/weights/begin": self._with_session(self._begin),
                "/weights/ready": self._with_session(self._ready),
                "/weights/bucket": self._with_session(self._bucket),
                "/weights/end": self._with_session(self._end),
            }
        )

    # ------------------------------------------------------------------ paths

    def _claim(self, body: Body) -> dict[str, Any]:
        return self.server.service.claim(body[0], address=self._own_address())

    def _release(self, session: Session, body: Body) -> dict[str, Any]:
        self.server.service.release(session)
        return {}

    def _submit(self, session: Session, body: Body) -> dict[str, Any]:
        header, arrays = body
        requests, sampling = unpack_requests(header, arrays)
        self.server.service.submit(session, header["number"], requests, sampling)
        return {}

    def _call(self, session: Session, body: Body) -> dict[str, Any]:
        self.server.service.call(session, body[0]["number"], body[0]["name"])
        return {}

    def _collect(self, session: Session, body: Body) -> bytes | dict[str, Any] | None:
        outcome = self.server.service.collect(session, body[0]["number"], seconds=_seconds(body[0]))
        if outcome is None:
            return None
        value = outcome.result()
        return pack_samples(value) if isinstance(value, list) else {"weight_version": value}

    def _begin(self, session: Session, body: Body) -> dict[str, Any]:
        header = body[0]
        self.server.service.begin_sync(
            session,
            header["number"],
            header["version"],
            address=self._own_address(),
            joined=bool(header["joined"]),
        )
        return {}

    def _ready(self, session: Session, body: Body) -> dict[str, Any] | None:
        attempt = self.server.service.sync_is_ready(session, seconds=_seconds(body[0]))
        return None if attempt is None else {"attempt": attempt}

    def _bucket(self, session: Session, body: Body) -> dict[str, Any]:
        self.server.service.add_bucket(session, body[0]["tensors"], int(body[0]["num_bytes"]))
        return {}

    def _end(self, session: Session, body: Body) -> dict[str, Any]:
        self.server.service.end_sync(session, str(body[0]["checksum"]))
        return {}

    # ------------------------------------------------------------------ around them

    def _with_session(
        self, path: Callable[[Session, Body], Any]
    ) -> Callable[[Body], bytes | dict[str, Any] | None]:
        return lambda body: path(self.server.service.session(str(body[0]["session"])), body)

    def _answer(self, paths: Mapping[str, Callable[[Body], bytes | dict[str, Any] | None]]) -> None:
        if not self.server.places.acquire(blocking=False):
            self._send(503, _error(Refused(503, "too many connections")))
            return
        try:
            self._refuse_strangers()
            path = paths.get(self.path)
            if path is None:
                raise Refused(404, f"there is no {self.command} {self.path}")
            value = path(self._body())
            if value is None:
                self._send(204, b"")
            else:
                self._send(200, value if isinstance(value, bytes) else pack(value))
        except Refused as error:
            self._send(error.status, _error(error))
        except WorkingsError as error:
            self._send(422, _error(error))
        except (KeyError, TypeError, ValueError) as error:
            self._send(400, _error(Refused(400, f"the request cannot be read: {error!r}")))
        except ConnectionError:
            self.close_connection = True
        finally:
            self.server.places.release()

    def _refuse_strangers(self) -> None:
        if self.headers.get(HEADER) is None:
            raise Refused(400, f"this server answers clients of workings only (no {HEADER} header)")
        token = self.server.token
        if token is None:
            return
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            what = "another token" if given else "no token"
            raise Refused(
                401,
                f"the request carries {what}",
                hint="set WORKINGS_SERVER_TOKEN to the same text on both sides",
            )

    def _body(self) -> Body:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise Refused(413, f"a body of {length} bytes; expected at most {MAX_BODY_BYTES}")
        return unpack(self.rfile.read(int(length))) if int(length) else ({}, [])

    def _own_address(self) -> str:
        """This host's address on the way to the client: where it can be reached from there."""
        return str(self.connection.getsockname()[0])

    def _send(self, status: int, body: bytes) -> None:
        if status >= 400:
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by its base
        """Nothing: what matters is an error that the trainer reports."""


def _seconds(header: Mapping[str, Any]) -> float:
    return min(float(header["seconds"]), MAX_WAIT_SECONDS)


def _error(error: WorkingsError) -> bytes:
    memory = is_out_of_memory(error)
    return pack({"message": error.message, "hint": error.hint, "memory": memory})


def readable(health: Mapping[str, Any]) -> str:
    """The answer of /health as a person reads it."""
    return json.dumps(health, indent=2, sort_keys=True)
