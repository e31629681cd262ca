"""What a server counted: requests, commands and processor time."""

from types import TracebackType
from typing import Any, NamedTuple, Self

import redis

_SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval")
_OURS = "cmdstat_info"


class Counts(NamedTuple):
    """Since the server began, or between two looks at it."""

    requests: int
    """Calls of scripts; of all commands where there are no scripts, which is the same: one round trip each."""
    commands: int
    """All commands, those that scripts call included."""
    processor: float
    """Seconds, of the user and the system."""


class Meter:
    """Looks at the server at `url` through a connection of its own, which it does not count."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True)
        self._begun = Counts(0, 0, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def begin(self) -> None:
        """Count from now on."""
        self._begun = self._look()

    def counts(self) -> Counts:
        """Return what the server counted since then."""
        now, then = self._look(), self._begun
        requests, commands = now.requests - then.requests, now.commands - then.commands
        return Counts(requests or commands, commands, now.processor - then.processor)

    def _look(self) -> Counts:
        processor: Any = self._client.info("cpu")
        rows: Any = self._client.info("commandstats")
        calls = {name: row["calls"] for name, row in rows.items() if name != _OURS}
        requests = sum(calls.get(name, 0) for name in _SCRIPTS)
        return Counts(requests, sum(calls.values()), processor["used_cpu_user"] + processor["used_cpu_sys"])
