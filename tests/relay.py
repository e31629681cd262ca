"""A slow network on this machine: a TCP relay before a server, which holds up each direction for half a round trip."""

import select
import socket
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_CHUNK = 1 << 18
_PATIENCE = 10.0
# So late does select() come back from a timeout: 50 us of slack that Linux allows its timers, and the waking. Asked to
# come that much earlier it is in time; and what is due sooner than that is worth a few empty rounds.
_LATE = 0.0001


class Direction:
    """One way of a connection: what came in, each piece with the instant at which it is due. Order is kept."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self.source, self.sink = source, sink
        self.ended = False  # the source has nothing more to say
        self.over = False  # nor has the sink anything more to hear
        self.stuck = False  # the sink takes no more for now
        self._delay = delay
        self._pieces: deque[tuple[float, memoryview]] = deque()

    @property
    def due(self) -> float:
        """When there is something to pass on; inf: not before something comes in, or the sink has room."""
        return self._pieces[0][0] if self._pieces and not self.stuck else float("inf")

    def receive(self) -> None:
        """Take in what has arrived; an empty piece is the end."""
        try:
            piece = self.source.recv(_CHUNK)
        except ConnectionError:
            piece = b""
        self.ended = not piece
        self._pieces.append((time.monotonic() + self._delay, memoryview(piece)))

    def pass_on(self, now: float) -> None:
        """Send all that is due, as far as the sink takes it."""
        self.stuck = False
        while self.due <= now:
            due, piece = self._pieces.popleft()
            if not piece:
                self._end()
            elif (sent := self._send(piece)) < len(piece):
                self._pieces.appendleft((due, piece[sent:]))
                self.stuck = True

    def _send(self, piece: memoryview) -> int:
        try:
            return self.sink.send(piece)
        except BlockingIOError:
            return 0
        except ConnectionError:  # nobody hears it; that the other direction is over shows there
            return len(piece)

    def _end(self) -> None:
        self.over = True
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone already
            pass


class Relay:
    """Listens on a port of its own and relays to the server at `url`, for as long as the `with` lasts.

    A piece of data is held up for half of `round_trip` (s) from its arrival, however many are on their way: bandwidth
    is not limited. One thread serves all connections; it sleeps in select(), which has microseconds where poll() has
    milliseconds. What the server and the relaying itself take, some 0.1 ms on an idle machine, comes on top.
    """

    def __init__(self, url: str, round_trip: float) -> None:
        self._target = urlsplit(url)
        self._delay = round_trip / 2
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._ours, self._bell = socket.socketpair()
        self._directions: list[Direction] = []
        self._thread = threading.Thread(target=self._run, name="relay")
        database = self._target.path if self._target.scheme != "unix" else ""
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}{database}"

    def __repr__(self) -> str:
        return f"<Relay {self.url} to {self._target.geturl()}: {len(self._directions) // 2} connections>"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.close()
        self._thread.join(_PATIENCE)
        for each in (self._listener, self._ours, *(direction.source for direction in self._directions)):
            each.close()

    def _run(self) -> None:
        while True:
            sources = [each.source for each in self._directions if not each.ended]
            sinks = [each.sink for each in self._directions if each.stuck]
            wait = min((each.due for each in self._directions), default=float("inf")) - time.monotonic()
            heard, free, _ = select.select(
                [self._ours, self._listener, *sources], sinks, [], None if wait > _PATIENCE else max(0.0, wait - _LATE)
            )
            if self._ours in heard:
                return
            if self._listener in heard:
                self._accept()
            self._relay({*heard}, {*free})

    def _relay(self, heard: set[socket.socket], free: set[socket.socket]) -> None:
        for each in self._directions:
            if each.source in heard and not each.ended:
                each.receive()
            if not each.stuck or each.sink in free:
                each.pass_on(time.monotonic())
        self._close_what_is_over()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setblocking(False)
            if end.family != socket.AF_UNIX:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._directions += [Direction(client, server, self._delay), Direction(server, client, self._delay)]

    def _connect(self) -> socket.socket:
        if self._target.scheme != "unix":
            return socket.create_connection((self._target.hostname or "127.0.0.1", self._target.port or 6379))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(unquote(self._target.path))
        except OSError:
            server.close()
            raise
        return server

    def _close_what_is_over(self) -> None:
        """A connection is over when neither end has anything more to say."""
        over = {each.source for each in self._directions if each.over}
        gone = [each for each in self._directions if each.source in over and each.sink in over]
        for each in gone:
            each.source.close()
            self._directions.remove(each)
