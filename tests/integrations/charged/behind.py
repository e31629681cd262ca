"""What stands behind each face: rules, whose buckets are read when all is closed, and the end of each response."""

import threading
from collections.abc import Callable
from typing import Any

from batchlimit.rules import Rule
from tests.integrations.backing import Backing
from tests.sync.stage import until

BURST = 10
KEY = "route:{user}"
"""What routes ask for."""
OFF_KEY = "off:{user}"
"""What a route asks for that refuses everybody."""


class Behind(Backing):
    """The rules of one face, and their buckets."""

    def __init__(self) -> None:
        quota = f"{BURST}/day"
        self.rules = [
            Rule("path", quota, key="path:{user}"),
            Rule("route", quota, key=KEY, match=None),
            Rule("off", "0/s", key=OFF_KEY, match=None),
            Rule("outcome", quota, key="outcome:{user}", charge=self._charge),
        ]
        self.messages = [Rule("messages", quota, key="messages:{user}")]
        super().__init__([*self.rules, *self.messages])
        self._ended, self._lock = 0, threading.Lock()

    def await_ends(self, statistics: Callable[[], Any]) -> None:
        """Wait until every response that was charged has ended."""
        until(lambda: self._ended == statistics().rules["outcome"].acquired)

    def tokens(self, user: str) -> dict[str, int]:
        """Return what a user was charged, by rule. All limiters are closed."""
        with self.probe() as probe:
            names = ("path", "route", "outcome", "messages")
            return {name: BURST - probe.peek(f"{name}:{user}").remaining for name in names}

    def _charge(self, response: Any) -> bool:
        with self._lock:
            self._ended += 1
        return bool(response.status == 200)
