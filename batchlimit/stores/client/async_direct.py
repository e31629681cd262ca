"""A store's own connection to one server, for tasks: one for the calls of all of them.

A server replies in the order of the commands, so a task sends its command without waiting for the replies to others.
A command is sent at once if no reply is awaited; the others of a turn of the event loop leave in one write. redis-py
opens and greets the connection, and then lets go of its transport.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import InvalidResponse, NoScriptError, RedisError

from batchlimit.stores.client.deadline import WATCH, WatchPaused
from batchlimit.stores.client.diagnosis import PASSING, code_of, untraced
from batchlimit.stores.client.scripts import NOTHING, PUSH, Arguments, Buckets, command, reader, script, words
from batchlimit.stores.client.transport import AsyncServerTransport

_CLOSED = "Connection closed by server."


class MultiplexedConnection(asyncio.Protocol):
    """Sends commands, and settles a future for each reply. Use it on its own event loop only."""

    def __init__(self, connection: Any) -> None:
        """Take over the transport of a connected redis-py connection, which is not to be used any more."""
        # Private, all three; they have these names from redis-py 5.2 to 8.1.
        parser, self._writer = reader(connection._parser.parse_error), connection._writer
        connection._reader = connection._writer = None
        self._feed, self._next_reply = parser.feed, parser.gets
        self._transport: asyncio.WriteTransport = self._writer.transport  # a writer that is dropped closes it
        self._loop = asyncio.get_running_loop()
        self._outbox: list[tuple[bytes, Reply]] = []
        self._asked: deque[Reply] = deque()
        self.is_open = True  # it takes more calls: it is connected, and no caller gave up waiting for a reply
        self._left: list[Reply] = []  # once it takes no more: those that may be awaited yet
        self._error: Exception | None = None  # why it was ended
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._transport.set_protocol(self)

    def send(self, command: bytes) -> "Reply":
        """Send a packed command, once, without waiting; the future gets the reply, or raises as redis-py does.

        After a caller cancels its future, the connection takes no more calls, because that reply may never come. It
        ends when all other callers have their replies.
        """
        if not self.is_open:  # it ended before its first use: no reply would ever come
            raise (self._error or redis.ConnectionError(_CLOSED)).with_traceback(None)
        answer = Reply(loop=self._loop)
        answer.connection, answer.hear = self, None
        self._outbox.append((command, answer))
        if not self._asked:
            self._flush()
        elif len(self._outbox) == 1:
            self._loop.call_soon(self._flush)
        return answer

    def retire(self) -> None:
        """Take no more calls, and end when no caller waits for a reply any more."""
        if self.is_open:
            self._left, self.is_open = list(self._unanswered()), False
        while self._left and self._left[-1].done():  # each is passed once, however many are given up together
            self._left.pop()
        if not self._left:
            self._transport.abort()

    async def close(self) -> None:
        """End at once; callers that still wait get a ConnectionError."""
        self._abort()
        await asyncio.shield(self._lost)

    def data_received(self, data: bytes) -> None:
        is_settled = False
        try:
            self._feed(data)
            while (reply := self._next_reply()) is not NOTHING:
                if isinstance(reply, PUSH) or (answer := self._asked.popleft()).done():  # cancelled by its caller
                    continue
                if isinstance(reply, Exception):
                    answer.set_exception(reply)
                else:
                    answer.set_result(reply)
                is_settled = True  # who hears it may be interrupted, and the next reply is the next one's all the same
                if answer.hear is not None:
                    answer.hear(answer)
                is_settled = False
            if not self.is_open:
                self.retire()
        except RedisError as error:  # these bytes are no reply
            self._abort(error)
        except IndexError:
            self._abort(InvalidResponse("a reply without a command"))
        except BaseException:
            if is_settled:
                self._loop.call_soon(self.data_received, b"")
            else:
                self._abort()
            raise

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        why = _CLOSED if exc is None else f"Error while reading from the server: {exc.args}"
        error = self._error = self._error or redis.ConnectionError(why)
        answers = [answer for answer in self._unanswered() if not answer.done()]
        for answer in answers:
            answer.set_exception(error)
        self._asked, self._outbox, self._left = deque(), [], []
        self._lost.set_result(None)
        for answer in answers:  # last: a signal handler may raise in what hears it
            if answer.hear is not None:
                answer.hear(answer)

    def _unanswered(self) -> "tuple[Reply, ...]":
        return *self._asked, *(answer for _, answer in self._outbox)

    # A signal handler may raise between any two lines. Then nobody knows whose the next reply is: the connection ends.

    def _flush(self) -> None:
        if not self._outbox:  # a command that found no reply awaited took the others with it
            return
        try:
            outbox, self._outbox = self._outbox, []
            commands, answers = zip(*outbox, strict=True)
            self._asked.extend(answers)
            self._transport.write(b"".join(commands))
        except BaseException:
            self._abort()
            raise

    def _abort(self, error: Exception | None = None) -> None:
        self.is_open, self._error = False, error
        self._transport.abort()


class Reply(asyncio.Future[Any]):
    """The reply to one command. After a caller gave it up, its connection takes no more calls.

    `hear` is called as soon as it is there; a callback would take a turn of the event loop, a tenth of a spend.
    """

    __slots__ = ("connection", "hear")
    connection: MultiplexedConnection
    hear: "Callable[[asyncio.Future[Any]], None] | None"

    def cancel(self, msg: Any = None) -> bool:
        if is_given_up := super().cancel(msg):
            self.connection.retire()
            if self.hear is not None:
                self.hear(self)
        return is_given_up


_LONG = 5.0
"""Seconds for a reply that may be long."""


class AsyncDirectTransport(AsyncServerTransport):
    """The one server of a client that nobody else uses, by one MultiplexedConnection after another."""

    def __init__(self, client: "redis.asyncio.Redis") -> None:
        super().__init__(client)
        self._seconds: float | None = client.connection_pool.connection_kwargs.get("socket_timeout")
        self._multiplexed: MultiplexedConnection | None = None
        self._connecting: asyncio.Task[MultiplexedConnection] | None = None
        self._callers = 0  # tasks that wait for it

    async def run(self, name: str, buckets: Buckets, arguments: Arguments) -> Any:
        ask = command(words(name, buckets, arguments))
        try:
            return await self._ask(ask)
        except NoScriptError:
            await self._ask(command(("SCRIPT", "LOAD", script(name))))
            return await self._ask(ask)

    async def ask(self, key: str, *commands: tuple[str, ...]) -> Sequence[Any]:
        return [await self._ask(command(each), _LONG) for each in commands]

    def send(self, name: str, buckets: Buckets, arguments: Arguments) -> "asyncio.Future[Any] | None":
        """Send a script in this turn of the loop, as `run` does; None if it would have to connect first."""
        if self._multiplexed is None or not self._multiplexed.is_open:
            return None
        return self._multiplexed.send(command(words(name, buckets, arguments)))

    async def reset_after(self, error: Exception) -> None:
        if code_of(error) in PASSING and self._multiplexed is not None:
            self._multiplexed.retire()

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._multiplexed is not None:
            await self._multiplexed.close()
        await super().aclose()

    async def _ask(self, packed: bytes, seconds: float = 0.0) -> Any:
        multiplexed = self._multiplexed
        if multiplexed is None or not multiplexed.is_open:
            multiplexed = await self._connected()
        if WATCH.get() is not None:  # the caller's watch bounds the time
            return await multiplexed.send(packed)
        try:
            async with asyncio.timeout(max(seconds, self._seconds or math.inf)):
                return await multiplexed.send(packed)
        except TimeoutError as error:
            raise redis.TimeoutError(f"Timeout reading from the server after {self._seconds} s") from error

    async def _connected(self) -> MultiplexedConnection:
        """Connect, or wait for the task that does. When no caller waits any more, that task is cancelled."""
        with WatchPaused():
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect(), name="batchlimit-connect", context=Context())
            mine = self._connecting
            self._callers += 1
            try:
                return await asyncio.shield(mine)
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if mine.cancelled() and caller is not None and not caller.cancelling():
                    raise redis.ConnectionError("the store was closed") from None  # nobody cancelled the caller
                raise
            finally:
                self._callers -= 1
                if mine is self._connecting and (mine.done() or not self._callers):
                    self._connecting = None
                    mine.cancel()

    async def _connect(self) -> MultiplexedConnection:
        pool: Any = self.client.connection_pool
        connection = pool.make_connection()
        try:
            await connection.connect()
        except BaseException as error:  # asyncio logs it with its traceback if no caller waits any more
            untraced(error)
            raise
        multiplexed = MultiplexedConnection(connection)
        if asyncio.current_task() is self._connecting:
            self._multiplexed = multiplexed
        else:  # cancelled, but `wait_for` of Python 3.11 in redis-py may lose that: another task connects by now
            multiplexed.retire()
        return multiplexed
