"""What the clocks of servers show, so that a call can say until when its caller waits."""

import math
import time

_SECOND = 1_000_000


class ServerClocks:
    """What the servers' clocks show, as far as answers have told.

    A server that was stopped for a while carries out what came meanwhile, when nobody waits for it any more. So a call
    tells until when its caller waits, by the server's clock: later the script does nothing.

    A script ran at some instant between the call and the moment in which its reply was read. A busy process reads it
    late, and a server that was stopped runs it late. So an answer changes what is known only where that cannot be true.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # us, by server: its clock less time.monotonic()

    def __repr__(self) -> str:
        return f"<ServerClocks of {len(self._ahead)} servers>"

    def latest(self, server: str, within: float) -> float:
        """Return what a server's clock shows in so many seconds (us; inf: nobody knows)."""
        return (time.monotonic() + within) * _SECOND + self._ahead.get(server, math.inf)

    def hear(self, server: str, clock: float, sent: float = -math.inf) -> None:
        """Take in what a server's clock showed when it answered a call that was `sent` then, by time.monotonic()."""
        least, most = clock - time.monotonic() * _SECOND, clock - sent * _SECOND
        self._ahead[server] = max(least, min(self._ahead.get(server, most), most))
