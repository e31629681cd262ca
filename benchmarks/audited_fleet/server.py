"""The server's own counters: commands from clients, and processor time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

# INFO commandstats counts the commands that a script issues (hmget, time, pexpire, ...) like those of a client. These
# here are what clients of batchlimit send and none of its scripts issues: each is a request through a socket.
_RUNNING = {"eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "script"}
_CONNECTING = {"auth", "client", "cluster", "command", "hello", "ping", "readonly", "select"}


@dataclass(frozen=True, slots=True)
class Work:
    """Requests from clients, and seconds of processor time, since the server began."""

    calls: int
    cpu: float

    def since(self, before: "Work") -> "Work":
        """Return the work since `before`."""
        return Work(self.calls - before.calls, self.cpu - before.cpu)


class Server:
    """Reads the counters of one server, which count all its clients."""

    __slots__ = ("_client", "name")

    def __init__(self, url: str, timeout: float = 2.0) -> None:
        """Connect.

        Args:
            url: a URL of one server.
            timeout: for connecting and for each reply (seconds, default 2.0).

        Raises:
            redis.RedisError: the server does not answer.
            ValueError: the URL names no single server.
        """
        scheme, _, rest = url.partition("://")
        url = f"{ {'valkey': 'redis', 'valkeys': 'rediss'}.get(scheme, scheme) }://{rest}"
        self._client = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        told = self._info("server")
        self.name = f"Valkey {told['valkey_version']}" if "valkey_version" in told else f"Redis {told['redis_version']}"

    def work(self) -> Work:
        """Return the counters."""
        cpu = self._info("cpu")
        return Work(client_calls(self._info("commandstats")), cpu["used_cpu_user"] + cpu["used_cpu_sys"])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _info(self, section: str) -> dict[str, Any]:
        answer: Any = self._client.info(section)  # typed as perhaps awaitable, for the asynchronous client's sake
        return dict(answer)


def client_calls(commandstats: Mapping[str, Mapping[str, int]]) -> int:
    """Return the requests of clients among the commands, such as evalsha; not the commands that scripts issued."""
    return sum(
        stats["calls"]
        for name, stats in commandstats.items()
        if name.removeprefix("cmdstat_").partition("|")[0] in _RUNNING | _CONNECTING
    )
