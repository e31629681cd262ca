"""A bad network on this machine: a TCP relay before a server, which delays, throttles, loses and cuts as it is told."""

import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.connections import Connections
from tests.direction import Weather
from tests.sockets import bound, knock

_BACKLOG = 512
_PATIENCE = 100.0
# So late does select() come back from a timeout: 50 us of slack that Linux allows its timers, and the waking. Asked to
# come that much earlier it is in time; and what is due sooner than that is worth a few empty rounds.
_LATE = 0.0001


class Relay:
    """Listens on a port of its own and relays to the server at `url`, for as long as the `with` lasts.

    A piece of data is held up for half of `round_trip` (s) from its arrival, however many are on their way: bandwidth
    is not limited. One thread serves all connections; it sleeps in select(), which has microseconds where poll() has
    milliseconds. What the server and the relaying itself take, some 0.1 ms on an idle machine, comes on top.

    The faults may be called within the `with`, from any thread; when one returns it is in force, until `restore`.
    """

    def __init__(self, url: str, round_trip: float) -> None:
        self._target = urlsplit(url)
        self._round_trip = round_trip
        self._weather = Weather(round_trip / 2)
        self._listener = bound(0)
        self._listener.listen(_BACKLOG)
        self._listening = True
        self._orders: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._ours, self._bell = socket.socketpair()
        self._connections = Connections(self._target, self._weather)
        self._thread = threading.Thread(target=self._run, name="relay")
        database = self._target.path if self._target.scheme != "unix" else ""
        user, at, _ = self._target.netloc.rpartition("@")
        self.url = f"redis://{user}{at}127.0.0.1:{self._listener.getsockname()[1]}{database}"

    def __repr__(self) -> str:
        return f"<Relay {self.url} to {self._target.geturl()}: {len(self._connections)} connections>"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.close()
        self._thread.join(_PATIENCE)
        for each in (self._listener, self._ours, self._connections):
            each.close()

    # Faults

    def hold(self, round_trip: float) -> None:
        """From now on a round trip takes so many seconds."""
        self._order(lambda: setattr(self._weather, "delay", round_trip / 2))

    def throttle(self, rate: float) -> None:
        """Pass on so many bytes/s each way, for each connection."""
        self._order(lambda: setattr(self._weather, "rate", rate))

    def drop(self, *, connecting: bool = False) -> None:
        """Let nothing through, either way; it arrives after `restore`, since who sent it goes on sending it.

        New connections are made, and then hear nothing; with `connecting` not even that.
        """
        self._order(lambda: self._drop(connecting))

    def reset(self) -> None:
        """Cut all connections now, with a reset to both ends; new ones are as good as ever."""
        self._order(self._connections.reset)

    def strand(self) -> None:
        """Let the connections that there are hear and say nothing any more, as a NAT that forgot them; not new ones."""
        self._order(self._connections.strand)

    def refuse(self) -> None:
        """Cut all connections, and refuse new ones."""
        self._order(self._refuse)

    def half_close(self) -> None:
        """Tell all clients now that the server will say no more; what they say still arrives."""
        self._order(self._connections.half_close)

    def lose_replies(self) -> None:
        """Pass on what clients say and lose what is answered.

        `restore` cuts the connections on which anything was said meanwhile: a late answer to that is lost as well.
        """
        self._order(lambda: setattr(self._weather, "replies", False))

    def restore(self) -> None:
        """Be a good network again."""
        self._order(self._restore)

    def _drop(self, connecting: bool) -> None:
        self._weather.passing = False
        if connecting:
            # A queue with no room for more: the kernel ignores who knocks, and they knock again a second later.
            self._listener.listen(0)
            for _ in range(2):
                knock(self._listener)

    def _refuse(self) -> None:
        port = self._listener.getsockname()[1]
        self._listener.close()
        self._listener, self._listening = bound(port), False  # bound, and not listening: nobody else gets the port
        self._connections.reset()

    def _restore(self) -> None:
        self._connections.reset(torn=True)
        self._weather.delay, self._weather.rate = self._round_trip / 2, math.inf
        self._weather.passing = self._weather.replies = self._listening = True
        self._listener.listen(_BACKLOG)

    def _order(self, change: Callable[[], None]) -> None:
        """Have the relay's own thread do it, between two pieces, and wait for that."""
        done = threading.Event()
        self._orders.append((change, done))
        self._bell.send(b"!")
        if not done.wait(_PATIENCE):
            raise TimeoutError(f"{self!r} does not answer")

    # The relaying

    def _run(self) -> None:
        while True:
            passing = self._weather.passing
            listeners = [self._listener] if passing and self._listening else []
            sources, sinks = (self._connections.sources, self._connections.sinks) if passing else ([], [])
            wait = self._connections.due - time.monotonic()
            heard, free, _ = select.select(
                [self._ours, *listeners, *sources], sinks, [], None if wait > _PATIENCE else max(0.0, wait - _LATE)
            )
            if self._ours in heard:
                if not self._ours.recv(1):
                    return
                change, done = self._orders.popleft()
                change()
                done.set()
                continue  # by now these sockets may be closed
            if self._listener in heard:
                self._connections.accept(self._listener)
            self._connections.relay({*heard}, {*free})
