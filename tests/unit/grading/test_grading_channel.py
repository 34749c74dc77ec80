"""Messages over a pair of sockets, whole or in pieces."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workings.grading.workers.channel import Channel


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[bytes], data: st.DataObject
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        stream = b"".join(len(one).to_bytes(4, "big") + one for one in messages)
        received: list[bytes] = []
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            theirs.sendall(stream[:size])
            stream = stream[size:]
            received += channel.receive()
        assert received == messages
        assert not channel.is_readable()


def test_both_ends() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    ours.send(b"question")
    assert theirs.receive() == [b"question"]
    theirs.send(b"")
    theirs.send(b"answer")
    received: list[bytes] = []
    while len(received) < 2:
        received += ours.receive()
    assert received == [b"", b"answer"]
    theirs.close()
    assert ours.is_readable()
    with pytest.raises(EOFError, match="the other end is closed"):
        ours.receive()
    with pytest.raises(BrokenPipeError):
        ours.send(b"anyone?")
    ours.close()
    assert ours.fileno() == -1


def test_a_length_that_cannot_be_is_no_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\xff" * 4)
        with pytest.raises(OSError, match="4294967295 bytes announced"):
            Channel(ours).receive()


def test_sending_to_an_end_that_does_not_read_gives_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TimeoutError):
        Channel(ours, timeout=0.05).send(b"x" * (8 << 20))
