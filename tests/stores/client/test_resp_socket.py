"""What is said on a channel is answered in time, or nobody else hears the answer."""

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from batchlimit.stores.client import resp_socket as module
from batchlimit.stores.client.deadline import hurry
from batchlimit.stores.client.resp_socket import RespSocket
from tests.sync.interrupter import Interrupter

LONG = 30.0
"""Longer than this machine ever stalls."""
Pair = tuple[RespSocket, socket.socket, socket.socket]


@contextlib.contextmanager
def pair(patience: float | None = LONG) -> Iterator[Pair]:
    """A channel, its socket, and the server's."""
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(patience)
        far.settimeout(LONG)
        yield RespSocket(near), near, far


def heard(far: socket.socket) -> bytes:
    """What the server was told so far."""
    far.settimeout(0.0)
    try:
        return far.recv(100)
    except BlockingIOError:
        return b""


# Answers


def test_each_command_has_its_answer_in_their_order_and_an_error_is_one() -> None:
    with pair() as (channel, _, far):
        far.sendall(b":1\r\n-WRONGTYPE of key\r\n*2\r\n:2\r\n$1\r\nx\r\n")
        one, wrong, both = channel.exchange(b"three", 3)
        assert heard(far) == b"three"
        assert (one, both) == (1, [2, b"x"])
        assert isinstance(wrong, redis.ResponseError)
        assert channel.is_ready


def test_what_a_server_says_unasked_is_no_answer() -> None:
    with pair() as (channel, _, far):
        far.sendall(b">2\r\n+invalidate\r\n*0\r\n:1\r\n")
        assert channel.exchange(b"ask", 1) == [1]


def test_an_answer_may_be_larger_than_what_is_received_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    with pair() as (channel, _, far):
        far.sendall(b"$10\r\n0123456789\r\n:1\r\n")
        assert channel.exchange(b"ask", 2) == [b"0123456789", 1]


def test_a_connection_that_ends_amid_an_answer_is_an_error() -> None:
    with pair() as (channel, _, far):
        far.sendall(b"$10\r\n01234")
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(redis.ConnectionError, match="closed by server"):
            channel.exchange(b"ask", 1)
        assert not channel.is_ready


def test_what_is_no_answer_is_an_error() -> None:
    with pair() as (channel, _, far):
        far.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with pytest.raises(redis.InvalidResponse):
            channel.exchange(b"ask", 1)
        assert not channel.is_ready


# Whose answer


@pytest.mark.parametrize("said", [b"+late\r\n", b"+la", b""], ids=["an answer", "a part of one", "its end"])
def test_a_channel_with_something_unread_is_not_ready(said: bytes) -> None:
    with pair() as (channel, _, far):
        assert channel.is_ready
        if said:
            far.sendall(said)
        else:
            far.shutdown(socket.SHUT_WR)
        assert not channel.is_ready


def test_more_than_was_asked_for_is_not_the_next_ones() -> None:
    with pair() as (channel, _, far):
        far.sendall(b"+one\r\n+late\r\n")
        assert channel.exchange(b"ask", 1) == [b"one"]
        assert not channel.is_ready


def test_after_a_timeout_nothing_more_is_said() -> None:
    with pair(0.01) as (channel, _, far):
        with pytest.raises(TimeoutError):
            channel.exchange(b"first", 1)
        assert not channel.is_ready
        with pytest.raises(ConnectionError, match="left unread"):
            channel.exchange(b"second", 1)
        assert heard(far) == b"first"


def test_a_caller_may_be_interrupted_at_any_line() -> None:
    """Who is amid an exchange leaves a channel that nobody uses again, be the answer there or still to come."""
    for n in itertools.count(1):
        with pair() as (channel, near, far):
            far.sendall(b"+one\r\n")
            if not interrupted(n, lambda: channel.exchange(b"ask", 1)):
                break
            is_unread, was_asked = bool(heard(near)) or channel._reader.has_data(), heard(far) == b"ask"
            assert channel._amid or not (was_asked and is_unread)
    assert n > 15


def interrupted(n: int, call: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt at the nth line of the channel; return whether there are so many."""
    return Interrupter(n, str(module.__file__), under_lock=True).run(call)


# In time


def test_a_hurry_that_is_over_gives_a_moment_to_what_lies_ready() -> None:
    """A thread that waited for others, and not for the server, finds its answer."""
    with pair() as (channel, _, far):
        far.sendall(b"+one\r\n")
        with hurry(time.monotonic() - 0.1):
            assert channel.exchange(b"ask", 1) == [b"one"]
            with pytest.raises(TimeoutError):
                channel.exchange(b"ask", 1)


def test_who_dribbles_has_one_moment_and_not_one_for_each_byte() -> None:
    with pair() as (channel, _, far):
        far.sendall(b"+on")
        with hurry(time.monotonic() - 0.1), pytest.raises(TimeoutError):
            channel.exchange(b"ask", 1)


def test_after_a_hurry_the_old_patience_is_back() -> None:
    with pair(7.0) as (channel, near, far):
        far.sendall(b"+one\r\n")
        with hurry(time.monotonic() + 5.0):
            channel.exchange(b"ask", 1)
            timeout = near.gettimeout()
            assert timeout is not None
            assert timeout <= 5.0
        far.sendall(b"+two\r\n")
        channel.exchange(b"ask", 1)
        assert near.gettimeout() == 7.0


def test_a_hurry_shortens_a_patience_and_never_lengthens_it() -> None:
    with pair(0.01) as (channel, _, _), hurry(time.monotonic() + LONG), pytest.raises(TimeoutError):
        channel.exchange(b"ask", 1)


def test_without_any_patience_a_hurry_ends_a_wait() -> None:
    with pair(None) as (channel, _, _), hurry(time.monotonic() + 0.01), pytest.raises(TimeoutError):
        channel.exchange(b"ask", 1)
