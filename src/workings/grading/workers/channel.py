"""Whole messages over a socket, for the two ends of a worker's line."""

from __future__ import annotations

import select
import socket
import struct

MAX_MESSAGE = 64 << 20
"""Most bytes of a message; a header that says more is not one."""
SEND_SECONDS = 5.0
"""Longest wait for a worker that does not read."""

_HEADER = struct.Struct("!I")
_BLOCK = 1 << 16
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)  # a dead reader is an error here, never SIGPIPE


class Channel:
    """One end of a pair of sockets. Half a message never makes its reader wait for the rest."""

    __slots__ = ("_buffer", "_socket")

    def __init__(self, end: socket.socket, *, timeout: float | None = None) -> None:
        end.settimeout(timeout)
        self._socket = end
        self._buffer = bytearray()

    def fileno(self) -> int:
        """The descriptor to wait on; -1 after `close`."""
        return self._socket.fileno()

    def is_readable(self) -> bool:
        """True where `receive` would find something, be it the end."""
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([self._socket], [], [], 0)[0])
        poll = select.poll()  # unlike select, it takes descriptors of any number
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, message: bytes) -> None:
        """Send a whole message; OSError where the other end is gone or does not read."""
        self._socket.sendall(_HEADER.pack(len(message)) + message, _NO_SIGNAL)

    def receive(self) -> list[bytes]:
        """The messages that one read completes, perhaps none; EOFError where the end is closed.

        Without a timeout it waits for something to read.
        """
        block = self._socket.recv(_BLOCK)
        if not block:
            raise EOFError("the other end is closed")
        buffer = self._buffer
        buffer += block
        messages = []
        while len(buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(buffer)
            if length > MAX_MESSAGE:
                raise OSError(f"not a message: {length} bytes announced")
            end = _HEADER.size + length
            if len(buffer) < end:
                break
            messages.append(bytes(buffer[_HEADER.size : end]))
            del buffer[:end]
        return messages

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
