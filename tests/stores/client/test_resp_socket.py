"""An exchange on a RespSocket is answered in time, or its answer reaches nobody else."""

import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from batchlimit.stores.client import deadline as module
from batchlimit.stores.client.deadline import RespSocket
from tests.stores.trouble import deadline_scope
from tests.sync.interrupter import Interrupter

LONG = 30.0
"""Longer than this machine ever stalls."""
Pair = tuple[RespSocket, socket.socket, socket.socket]


@contextlib.contextmanager
def pair(patience: float | None = LONG) -> Iterator[Pair]:
    """A resp, its socket, and the server's."""
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
    with pair() as (resp, _, far):
        far.sendall(b":1\r\n-WRONGTYPE of key\r\n*2\r\n:2\r\n$1\r\nx\r\n")
        one, wrong, both = resp.exchange(b"three", 3)
        assert heard(far) == b"three"
        assert (one, both) == (1, [2, b"x"])
        assert isinstance(wrong, redis.ResponseError)
        assert resp.is_ready


def test_a_push_message_is_no_reply() -> None:
    with pair() as (resp, _, far):
        far.sendall(b">2\r\n+invalidate\r\n*0\r\n:1\r\n")
        assert resp.exchange(b"ask", 1) == [1]


class FirstInVain:
    """A poll that ends at first before anything has come; only then something does."""

    def __init__(self, poll: select.poll, arrive: Callable[[], object]) -> None:
        self._poll, self._arrive = poll, [arrive]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        if self._arrive:
            self._arrive.pop()()
            return []
        return self._poll.poll(timeout)


class Patience:
    """A poll in vain that notes for how long (ms)."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        self.waits.append(timeout)
        return []


@pytest.mark.parametrize(
    ("patience", "deadline", "wait"),
    [(2.0, LONG, 2000.0), (2.0, None, 2000.0), (None, None, None), (2.0, 0.0, 1.0)],
    ids=["the socket's is shorter", "the socket's alone", "for ever", "the deadline is over"],
)
def test_a_reply_is_waited_for_by_the_socket_s_own_timeout_or_by_the_deadline(
    patience: float | None, deadline: float | None, wait: float | None
) -> None:
    scope = contextlib.nullcontext() if deadline is None else deadline_scope(time.monotonic() + deadline)
    with pair(patience) as (resp, _, _), scope:
        resp._poll = poll = Patience()  # type: ignore[assignment]
        with pytest.raises(TimeoutError):
            resp.exchange(b"ask", 1)
    assert poll.waits == [wait]


def test_who_listens_waits_for_longer_than_the_socket_has_patience() -> None:
    with pair() as (resp, _, far):
        resp._poll = FirstInVain(resp._poll, lambda: far.sendall(b"*1\r\n$4\r\nnews\r\n"))  # type: ignore[assignment]
        assert resp.read(LONG) == [b"news"]
        assert resp.read(0.0) is None


def test_an_answer_may_be_larger_than_what_is_received_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    with pair() as (resp, _, far):
        far.sendall(b"$10\r\n0123456789\r\n:1\r\n")
        assert resp.exchange(b"ask", 2) == [b"0123456789", 1]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        pytest.param(b"$10\r\n01234", redis.ConnectionError, id="a connection that ends within a reply"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", redis.InvalidResponse, id="bytes that are no reply"),
    ],
)
def test_what_is_no_whole_reply_is_an_error(said: bytes, error: type[Exception]) -> None:
    with pair() as (resp, _, far):
        far.sendall(said)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(error):
            resp.exchange(b"ask", 1)
        assert not resp.is_ready


# Whose answer


@pytest.mark.parametrize("said", [b"+late\r\n", b"+la", b""], ids=["an answer", "a part of one", "its end"])
def test_a_socket_with_something_unread_is_not_ready(said: bytes) -> None:
    with pair() as (resp, _, far):
        assert resp.is_ready
        if said:
            far.sendall(said)
        else:
            far.shutdown(socket.SHUT_WR)
        assert not resp.is_ready


def test_more_than_was_asked_for_is_not_the_next_ones() -> None:
    with pair() as (resp, _, far):
        far.sendall(b"+one\r\n+late\r\n")
        assert resp.exchange(b"ask", 1) == [b"one"]
        assert not resp.is_ready


def test_after_a_timeout_nothing_more_is_said() -> None:
    with pair(0.01) as (resp, _, far):
        with pytest.raises(TimeoutError):
            resp.exchange(b"first", 1)
        assert not resp.is_ready
        with pytest.raises(ConnectionError, match="left unread"):
            resp.exchange(b"second", 1)
        assert heard(far) == b"first"


def test_a_caller_may_be_interrupted_at_any_line() -> None:
    """An interrupted exchange leaves a socket that is not used again, whether the reply is there or still to come."""
    for n in itertools.count(1):
        with pair() as (resp, near, far):
            far.sendall(b"+one\r\n")
            if not interrupted(n, lambda: resp.exchange(b"ask", 1)):
                break
            is_unread, was_asked = bool(heard(near)) or resp._reader.has_data(), heard(far) == b"ask"
            assert resp._is_busy or not (was_asked and is_unread)
    assert n > 15


def interrupted(n: int, call: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt at the nth line of the resp; return whether there are so many."""
    return Interrupter(n, "stores/client/deadline", under_lock=True).run(call)


# In time


def test_a_deadline_that_has_passed_still_reads_an_answer_that_is_ready() -> None:
    """A thread that waited for others, and not for the server, finds its answer."""
    with pair() as (resp, _, far):
        far.sendall(b"+one\r\n")
        with deadline_scope(time.monotonic() - 0.1):
            assert resp.exchange(b"ask", 1) == [b"one"]
            with pytest.raises(TimeoutError):
                resp.exchange(b"ask", 1)


def test_a_slow_server_has_one_moment_and_not_one_for_each_byte() -> None:
    with pair() as (resp, _, far):
        far.sendall(b"+on")
        with deadline_scope(time.monotonic() - 0.1), pytest.raises(TimeoutError):
            resp.exchange(b"ask", 1)


def test_after_a_deadline_scope_the_sockets_own_timeout_counts() -> None:
    with pair(LONG) as (resp, _, far):
        far.sendall(b"+one\r\n")
        with deadline_scope(time.monotonic() - 0.1):
            assert resp.exchange(b"ask", 1) == [b"one"]
        assert far.recv(3) == b"ask"

        def serve() -> None:
            far.recv(3)
            far.sendall(b"+two\r\n")

        server = threading.Thread(target=serve)
        server.start()
        assert resp.exchange(b"ask", 1) == [b"two"]
        server.join()


def test_more_than_the_connection_has_room_for_is_sent_as_it_makes_room() -> None:
    asks = b"x" * 1_000_000
    with pair(LONG) as (resp, _, far):
        arrived: list[bytes] = []

        def serve() -> None:
            while sum(map(len, arrived)) < len(asks):
                arrived.append(far.recv(len(asks)))
            far.sendall(b"+one\r\n")

        server = threading.Thread(target=serve)
        server.start()
        assert resp.exchange(asks, 1) == [b"one"]
        server.join()
    assert b"".join(arrived) == asks


@pytest.mark.parametrize(
    ("timeout", "deadline", "packed"),
    [
        pytest.param(LONG, 0.01, b"x" * 10_000_000, id="a deadline of who sends to a server that reads nothing"),
        pytest.param(0.01, LONG, b"ask", id="a timeout that is shorter than the deadline"),
        pytest.param(None, 0.01, b"ask", id="a deadline without a timeout"),
    ],
)
def test_an_exchange_ends_by_its_deadline_and_by_its_timeout(
    timeout: float | None, deadline: float, packed: bytes
) -> None:
    with pair(timeout) as (resp, _, _), deadline_scope(time.monotonic() + deadline), pytest.raises(TimeoutError):
        resp.exchange(packed, 1)
