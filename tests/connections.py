"""The connections that a relay serves: two directions each."""

import math
import socket
import time
from collections.abc import Collection
from urllib.parse import SplitResult

from tests.direction import Direction, Weather
from tests.sockets import cut, dial


class Connections:
    """From clients to the server at `target`, through the same weather. To be used by one thread."""

    def __init__(self, target: SplitResult, weather: Weather) -> None:
        self._target, self._weather = target, weather
        self._directions: list[Direction] = []
        self._stranded: list[Direction] = []

    def __len__(self) -> int:
        return len(self._directions) // 2

    @property
    def sources(self) -> list[socket.socket]:
        """From where something may come."""
        return [each.source for each in self._directions if not each.ended]

    @property
    def sinks(self) -> list[socket.socket]:
        """Which are to take more as soon as they can."""
        return [each.sink for each in self._directions if each.stuck]

    @property
    def due(self) -> float:
        """When there is something to pass on next; inf: not before something comes in."""
        return min((each.due for each in self._directions), default=math.inf)

    def accept(self, listener: socket.socket) -> None:
        """Take in a client, and connect to the server for it; without a server the client hears the end."""
        client, _ = listener.accept()
        try:
            server = dial(self._target)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setblocking(False)
            if end.family != socket.AF_UNIX:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._directions += [
            Direction(client, server, self._weather, answers=False),
            Direction(server, client, self._weather, answers=True),
        ]

    def relay(self, heard: Collection[socket.socket], free: Collection[socket.socket]) -> None:
        """Take in what has come from whom was heard, and pass on what is due; to stuck sinks only if they are free."""
        for each in self._directions:
            if each.source in heard and not each.ended:
                each.receive()
            if not each.stuck or each.sink in free:
                each.pass_on(time.monotonic())
        self._close_what_is_over()

    def half_close(self) -> None:
        """Let all clients hear that the server will say no more."""
        for each in self._directions:
            if each.answers:
                each.end()

    def strand(self) -> None:
        """Pass nothing on for these connections any more, and end none of them."""
        self._stranded += self._directions
        self._directions = []

    def reset(self, *, torn: bool = False) -> None:
        """Cut all connections, or only those that are torn, with a reset to both ends."""
        ends = {end for each in self._directions if each.torn or not torn for end in (each.source, each.sink)}
        self._directions = [each for each in self._directions if each.source not in ends]
        for end in ends:
            cut(end)

    def close(self) -> None:
        """End all connections."""
        for each in self._directions + self._stranded:
            each.source.close()

    def _close_what_is_over(self) -> None:
        """A connection is over when neither end has anything more to say."""
        over = {each.source for each in self._directions if each.over}
        gone = [each for each in self._directions if each.source in over and each.sink in over]
        for each in gone:
            each.source.close()
            self._directions.remove(each)
