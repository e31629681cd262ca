"""One connection for the calls of many tasks: who asks first in a turn of the loop does so at once, others together.

A server answers in the order in which it was asked, so nobody has to wait for another's answer before asking, and what
lies ready is read at once. Redis-py connects, with all that belongs to it, and then lets go of the transport.
"""

import asyncio
from collections import deque
from typing import Any

import redis
from redis.exceptions import InvalidResponse, RedisError

from batchlimit.stores.client.codec import NOTHING, PUSH, reader

_CLOSED = "Connection closed by server."


class MultiplexedConnection(asyncio.Protocol):
    """Commands that go out, and futures for their answers. To be used on its loop alone."""

    def __init__(self, connection: Any) -> None:
        """Take over what a connected connection of redis-py has; nothing is left of it."""
        # Private, all three; they have these names from redis-py 5.2 to 8.1.
        self._reader = reader(connection._parser.parse_error)
        self._writer: asyncio.StreamWriter = connection._writer  # kept: when it is dropped, it closes the transport
        connection._reader = connection._writer = None
        self._loop = asyncio.get_running_loop()
        self._outbox: list[tuple[bytes, asyncio.Future[Any]]] = []
        self._is_turn = False  # whether somebody asked in this turn of the loop
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._waiting = 0  # how many of them somebody still waits for
        self._is_retired = False
        self._error: Exception | None = None  # why we ended it
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writer.transport.set_protocol(self)

    def __repr__(self) -> str:
        return f"<Pipe of {len(self._asked)} answers to come, {self._waiting} of them awaited>"

    @property
    def is_open(self) -> bool:
        """Whether it takes more calls: it is connected, and nobody gave up waiting for it."""
        return not self._is_retired

    async def ask(self, command: bytes) -> Any:
        """Send a packed command, once, and return the answer; raises what redis-py makes of an error."""
        try:
            return await self.send(command)
        except asyncio.CancelledError:
            self.retire()  # see _ended; which may have come before, of an answer that nobody takes any more
            raise

    def send(self, command: bytes) -> "asyncio.Future[Any]":
        """Send a packed command, once, without waiting; the future has the answer, or what `ask` would raise.

        What somebody cancels leaves its answer to nobody. It may never come: so the pipe takes no more calls, and ends
        when all who still wait have theirs.
        """
        if self._is_retired:  # it ended between being connected and being used: nobody would ever say so
            raise (self._error or redis.ConnectionError(_CLOSED)).with_traceback(None)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting += 1
        answer.add_done_callback(self._ended)
        self._outbox.append((command, answer))
        if not self._is_turn:
            self._is_turn = True
            self._loop.call_soon(self._end_turn)
            self._flush()
        return answer

    def retire(self) -> None:
        """Take no more calls, and end when nobody waits for an answer any more."""
        self._is_retired = True
        if not self._waiting:
            self._writer.transport.abort()

    async def close(self) -> None:
        """End at once; whoever still waits is told."""
        self._abort()
        await asyncio.shield(self._lost)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NOTHING:
                self._deliver(reply)
        except RedisError as error:  # that was no answer
            self._abort(error)
        except BaseException:
            self._abort()
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._is_retired = True
        error = self._error = self._error or redis.ConnectionError(
            _CLOSED if exc is None else f"Error while reading from the server: {exc.args}"
        )
        for answer in (*self._asked, *(answer for _, answer in self._outbox)):
            _settle(answer, error)
        self._asked.clear()
        self._outbox.clear()
        self._lost.set_result(None)

    # A signal handler may raise between any two lines: then nobody knows any more whose the next answer is.

    def _end_turn(self) -> None:
        self._is_turn = False
        if self._outbox:
            self._flush()

    def _flush(self) -> None:
        try:
            outbox, self._outbox = self._outbox, []
            self._asked.extend(answer for _, answer in outbox)
            self._writer.transport.write(b"".join([command for command, _ in outbox]))
        except BaseException:
            self._abort()
            raise

    def _ended(self, answer: "asyncio.Future[Any]") -> None:
        self._waiting -= 1
        if answer.cancelled() or self._is_retired:
            self.retire()

    def _abort(self, error: Exception | None = None) -> None:
        self._is_retired, self._error = True, error
        self._writer.transport.abort()

    def _deliver(self, reply: Any) -> None:
        if isinstance(reply, PUSH):
            return
        if not self._asked:
            raise InvalidResponse("an answer that nobody asked for")
        _settle(self._asked.popleft(), reply)


def _settle(answer: "asyncio.Future[Any]", reply: Any) -> None:
    if answer.done():  # whoever asked has left
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
