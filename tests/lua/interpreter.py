"""A Redis that fits in a test: one hash, the scripts in Lua 5.1 in this process, and a clock that the test sets."""

import math
from typing import Any

from lupa.lua51 import LuaRuntime
from redis.exceptions import ResponseError

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend, Spent
from batchlimit.bucket.slot_table import SlotAsk, SlotReply
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import (
    ServerClocks,
    SpendScript,
    give_back_arguments,
    lend_arguments,
    pause_arguments,
    read_grant,
    read_level,
    read_slots,
    reset_arguments,
    script,
    take_arguments,
)


class Interpreter:
    """Runs the scripts on the one bucket `fields`; `now` is its TIME (us).

    A clock that steps back leaves the end of a bucket where it was, as in a server.
    """

    def __init__(self) -> None:
        self.now = 0
        self._expires: int | None = None  # us
        self.said = 0
        """How often the scripts said when the bucket expires."""
        self.fields: dict[str, str] = {}
        self._lua = LuaRuntime(unpack_returned_tuples=True)
        self._lua.globals().redis = self._lua.table_from(
            {"call": self._call, "pcall": self._call, "error_reply": _raise}
        )
        self._scripts: dict[str, Any] = {}
        self.published: list[tuple[str, str]] = []
        for name in ("take", "give_back", "peek", "reset", "lend", "spend", "pause"):
            self.load(name, script(name))

    @property
    def ttl(self) -> int | None:
        """PTTL (ms)."""
        return None if self._expires is None else (self._expires - self.now) // 1000

    def load(self, name: str, text: str) -> None:
        """Know one more script."""
        run = "function(keys, args) KEYS, ARGV = keys, args\nreturn (function() %s end)() end"
        self._scripts[name] = self._lua.eval(run % text)

    def run(self, name: str, arguments: list[Any]) -> Any:
        """Return the script's reply as it is."""
        return self._scripts[name](
            self._lua.table_from(["bucket"]), self._lua.table_from([str(each) for each in arguments])
        )

    def take(self, quota: Quota, ask: Ask, script: str = "take") -> Grant:
        """Ask for tokens; here, as in a cluster, no script sees the overrides."""
        return read_grant(self.listed(script, take_arguments(quota, ask)))._replace(rules=0)

    def give_back(self, quota: Quota, back: GiveBack) -> int:
        return int(self.listed("give_back", give_back_arguments(quota, back))[0])

    def peek(self, quota: Quota) -> Level:
        return read_level(self.listed("peek", [quota.encoded]))

    def reset(self, *, forget: bool) -> tuple[float, ...] | None:
        return tuple([each / 1000 for each in self.listed("reset", reset_arguments(forget))]) or None

    def pause(self, quota: Quota, lasting: int) -> int:
        """Pause for so long (us), or lift it (0); return what the script says."""
        return int(self.listed("pause", pause_arguments(quota, lasting / 1e6, "a reason"))[0])

    def lend(self, ask: SlotAsk) -> SlotReply:
        return read_slots(self.listed("lend", lend_arguments(ask, "channel:")))

    def listed(self, name: str, arguments: list[Any]) -> list[Any]:
        """Return the script's reply as a list."""
        reply = self.run(name, arguments)
        return [_replied(reply[i]) for i in range(1, len(reply) + 1)]

    def _call(self, command: str, *arguments: Any) -> Any:
        return getattr(self, f"_{command.lower()}")(*(_spelled(each) for each in arguments))

    def spend(self, spend: Spend) -> Spent | None:
        """Spend at the bucket, in a group of its own."""
        script, groups = SpendScript("", "", ServerClocks()), [[spend]]
        _, _, arguments = script.call(groups, look=False, within=math.inf, server="")
        (group,) = script.read(self.listed("spend", arguments), groups, server="", sent=-math.inf).groups
        return None if group is None else group[0]

    def _exists(self, _key: str) -> int:
        return int(bool(self.fields))

    def _time(self) -> Any:
        return self._lua.table_from([str(self.now // 1_000_000), str(self.now % 1_000_000)])

    def _hmget(self, _key: str, *names: str) -> Any:
        return self._lua.table_from([self.fields.get(name, False) for name in names])

    def _hget(self, _key: str, name: str) -> Any:
        return self.fields.get(name, False)

    def _hgetall(self, _key: str) -> Any:
        return self._lua.table_from([each for pair in self.fields.items() for each in pair])

    def _hset(self, _key: str, *pairs: str) -> None:
        self.fields.update(zip(pairs[::2], pairs[1::2], strict=True))

    def _hdel(self, _key: str, *names: str) -> None:
        for name in names:
            self.fields.pop(name, None)
        if not self.fields:  # a server has no empty hash
            self._expires = None

    def _publish(self, channel: str, message: str) -> int:
        self.published.append((channel, message))
        return 1

    def _pexpire(self, _key: str, ttl: str) -> None:
        assert int(ttl) > 0
        self.said += 1
        self._expires = self.now // 1000 * 1000 + int(ttl) * 1000


def _raise(reply: str) -> None:
    raise ResponseError(reply)


def _replied(value: Any) -> Any:
    """Return what a server makes of it: it truncates numbers; a fraction, or one it cannot hold, is our mistake."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float):
        return [_replied(value[i]) for i in range(1, len(value) + 1)]
    assert value == int(value), value
    return int(value)


def _spelled(argument: Any) -> str:
    """Return what a script tells a command: a server spells numbers with 17 digits."""
    assert isinstance(argument, str | int | float), argument
    return argument if isinstance(argument, str) else f"{argument:.17g}"
