"""The Lua scripts: their text, their arguments and what they reply, as the headers of `lua/*.lua` list them.

All numbers of an ask are one argument, a line of text: arguments of their own would cost the caller 2 us more. They are
text because hiredis 3.5.0 crashes if a signal handler raises while it formats a number. Replies are integers, because a
caller's client may decode all replies to text.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path
from typing import Any

import hiredis
from redis.exceptions import InvalidResponse

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply, Spent, spent_of
from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota

SCRIPTS = {
    "take": ("start", "late", "bucket", "sweep", "refill", "take", "write"),
    "give_back": ("start", "bucket", "refill", "give_back", "write"),
    "peek": ("start", "bucket", "sweep", "refill", "peek"),
    "reset": ("start", "bucket", "sweep", "refill", "reset", "write"),
    "pause": ("start", "bucket", "refill", "pause", "write"),
    "spend": ("start", "spend"),
    "change": ("change",),
    "lend": ("lend",),
    "line": ("line",),
}
"""The files in `lua/` of each script, in order: they read, compute and write."""

_PACKAGED = files("batchlimit") / "lua"
_CHECKOUT = Path(__file__).parents[3] / "lua"
"""An editable install has no copy of the Lua, and reads the checkout's."""


@cache
def script(name: str) -> str:
    """Return the whole text of one of SCRIPTS, as the server runs it."""
    return "\n".join(_read(part) for part in SCRIPTS[name])


@cache
def digest(name: str) -> str:
    """Return the SHA1 by which a server knows the script."""
    return sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    packaged = _PACKAGED / f"{name}.lua"
    return (packaged if packaged.is_file() else _CHECKOUT / f"{name}.lua").read_text(encoding="utf-8")


NOTHING = object()
"""Returned by a reader if the next reply has not arrived to its end."""
PUSH: tuple[type, ...] = (hiredis.PushNotification,) if hasattr(hiredis, "PushNotification") else ()
"""Messages that a server sends without a command, in RESP3; hiredis before 3.2 has no class for them."""


def reader(error: Callable[[str], Exception]) -> hiredis.Reader:
    """Return a parser of replies, which raises InvalidResponse for bytes that are none."""
    return hiredis.Reader(protocolError=InvalidResponse, replyError=error, notEnoughData=NOTHING)


_SECOND = 1_000_000
_CHARGED, _ELSE = 1, 2
"""Verdicts of spend.lua."""
_USUAL = [1, 0, 0]
"""The weight and the rank of most asks, which need not be sent."""


PROBE_QUOTA = Quota(1.0, 1)
"""That of a bucket that is only looked at."""
_pack: Any = hiredis.pack_command
command: Callable[[tuple[str | bytes, ...]], bytes] = _pack  # its type stub has commands of one word only
"""Returns a command, by its words, in the bytes that are sent."""


Arguments = Sequence[str | bytes]
Buckets = Sequence[str]
"""Names of buckets, as `bucket_name` returns them."""


def words(name: str, buckets: Buckets, arguments: Arguments) -> tuple[str | bytes, ...]:
    """Return the words of the command that runs one of SCRIPTS for buckets of these names."""
    return ("EVALSHA", digest(name), str(len(buckets)), *buckets, *arguments)


def bucket_name(prefix: str, key: str) -> str:
    """`{prefix:key}`, of a checked prefix and a `stored` key; distinct keys have distinct names.

    The braces are Redis Cluster's hash tag: names made by appending to this one live in the same slot as the bucket. A
    key with "}" ends the tag early, at the same place in all of these names.
    """
    # Not an f-string: that would ask an enum member, which is a str too, for its label.
    return "{" + prefix + ":" + key + "}"


def take_arguments(quota: Quota, ask: Ask, seen: Sequence[str] = (), latest: str = "") -> list[str | bytes]:
    """Return ARGV of take.lua, which sees the hash of overrides named in `seen`, and does nothing from `latest` on."""
    instance, seq, need, queued, want, held, back, max_wait, age, epoch, fill, trip, *rest, look, refused, shadow = ask
    numbers = (seq, age * _SECOND, epoch, fill, need, queued, want, held, back, trip * _SECOND)
    told = "%d %d %d %s %d %d %d %d %d %d" % numbers  # noqa: UP031  an f-string takes a quarter more
    if max_wait or refused or shadow or rest != _USUAL:
        told += f" {round(max_wait * _SECOND)} {rest[0]} {rest[1]} {rest[2]} {refused} {shadow}"
    found: list[str | bytes] = [quota.encoded, instance, told, *(seen if look else ())]
    if latest:
        found += [""] * (4 - len(found)) + [latest]
    return found


Call = tuple[str, list[str], list[str | bytes]]
"""The script that is to run, the names of its buckets, and its arguments."""


class ServerClocks:
    """What the servers' clocks show: a call tells until when its caller waits, for a server that stops acts later.

    A script ran at some instant between the call and the moment in which its reply was read. A busy process reads it
    late, and a server that was stopped runs it late. So an answer changes what is known only where that cannot be true.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # us, by server: its clock less time.monotonic()

    def latest(self, server: str, within: float) -> str:
        """Return what a server's clock shows in so many seconds (us; "": nobody knows)."""
        instant = (time.monotonic() + within) * _SECOND + self._ahead.get(server, math.inf)
        return "%d" % instant if instant < math.inf else ""  # noqa: UP031  an f-string takes a quarter more

    def hear(self, server: str, clock: float, sent: float = -math.inf) -> None:
        """Take in what a server's clock showed when it answered a call that was `sent` then, by time.monotonic()."""
        least, most = clock - time.monotonic() * _SECOND, clock - sent * _SECOND
        if not least <= self._ahead.get(server, math.inf) <= most:
            self._ahead[server] = max(least, min(self._ahead.get(server, most), most))

    def is_late(self, server: str, reply: object) -> bool:
        """Whether a take did nothing, by what was known of its server's clock; from now on that is known better."""
        if not isinstance(reply, list) or len(reply) != 1:
            return False
        self.hear(server, reply[0])
        return True


class SpendScript:
    """The calls of spend.lua by one store."""

    __slots__ = ("_clocks", "_head", "_seen")

    def __init__(self, prefix: str, seen: str, clocks: ServerClocks) -> None:
        """`prefix` is that of the buckets, and `seen` names the hash of overrides ("": the script cannot read it)."""
        self._head, self._seen, self._clocks = "{" + prefix + ":", seen, clocks

    def call(self, groups: Groups, look: bool, within: float, server: str) -> Call:
        """Return the call, with the instant of this `server` from which on nothing is charged."""
        usual = groups[0][0].age
        names: list[str] = []
        found: list[str | bytes] = [
            self._seen if look else "",
            self._clocks.latest(server, within),
            "%d" % (usual * _SECOND),  # noqa: UP031  an f-string takes a quarter more
        ]
        soon = usual + 0.5  # of quotas that were set at once: the bucket counts their ages in whole seconds
        head = self._head
        for group in groups:
            size = len(group)
            for key, quota, cost, age, fill, rules, revision in group:
                names.append(head + key + "}")  # bucket_name, without its call
                wanted, line = quota.encoded, ""
                if rules or revision:
                    wanted += f"@{rules} {revision}"
                if (cost, size, fill) != (1, 1, 1.0) or not usual <= age < soon:
                    line = "%d %d %s %d" % (cost, size, fill, age * _SECOND)  # noqa: UP031
                    size = 1  # of the others it is not read
                found += wanted, line
        return "spend", names, found

    def read(self, reply: Sequence[int], groups: Groups, server: str, sent: float) -> SpendReply:
        """Return what became of the groups; they were `sent` then, by time.monotonic()."""
        rules, clock, *told = reply
        self._clocks.hear(server, clock, sent)
        found: list[tuple[Spent, ...] | None] = []
        numbers = iter(told)
        for group in groups:
            is_plain, spent = True, []
            for each, verdict, wait, epoch, level in zip(group, numbers, numbers, numbers, numbers):  # noqa: B905
                levels: tuple[float, ...] = (level / 1000,)
                if each.quota.also:  # apart, for nearly no quota has any
                    levels += tuple([next(numbers) / 1000 for _ in each.quota.also])
                is_plain &= verdict != _ELSE
                spent.append(spent_of((verdict == _CHARGED, wait / _SECOND, epoch, levels)))
            found.append(tuple(spent) if is_plain else None)
        return SpendReply(rules, found)


def give_back_arguments(quota: Quota, back: GiveBack) -> list[str | bytes]:
    """Return ARGV of give_back.lua."""
    return [quota.encoded, back.instance, f"{back.seq} {back.tokens} {back.held} {back.refund}"]


def reset_arguments(forget: bool) -> list[str | bytes]:
    """Return ARGV of reset.lua. No quota is asked with: a missing bucket is not begun."""
    return [PROBE_QUOTA.encoded, "", "1" if forget else "0"]


def pause_arguments(quota: Quota, seconds: float, why: str) -> list[str | bytes]:
    """Return ARGV of pause.lua; 0 seconds: to lift the pause."""
    return [quota.encoded, "", str(math.ceil(seconds * _SECOND)), why]


def read_grant(reply: Sequence[Any]) -> Grant:
    """Return the Grant in a reply of take.lua; raise BucketUnavailable if the bucket was damaged."""
    try:
        granted, kept, starts_in, lease, retry_after, active, epoch, version, config, rules, level, *more = reply
        starts_in, lease, retry_after = starts_in / _SECOND, lease / _SECOND, retry_after / _SECOND
        levels: tuple[float, ...] = (level / 1000,)
        if more:  # of further bandwidths; to find the least of one number would take as long as all of this
            level, levels = min(level, *more), levels + tuple([each / 1000 for each in more])
        quota = _quota(config) if config else None
    except (TypeError, ValueError) as error:
        raise BucketUnavailable(f"what lies at the bucket's name is no bucket: {error}", code="DAMAGED") from error
    numbers = granted, kept, starts_in, lease, retry_after, level // 1000, active, epoch, version
    return Grant(*numbers, quota, rules, levels)


@lru_cache(maxsize=1024)
def _quota(told: str | bytes) -> Quota:
    quota = Quota.decode(told.decode() if isinstance(told, bytes) else told)
    if quota.denies_all:
        raise ValueError(f"its quota is {str(quota)!r}, which no limiter writes: delete it, or use another prefix")
    return quota


def read_level(reply: Sequence[int]) -> Level:
    """Return the Level in a reply of peek.lua."""
    level, outstanding, active, *levels = reply
    return Level(level, outstanding, active, tuple([each / 1000 for each in levels]))


def lend_arguments(ask: SlotAsk, channel: str) -> list[str | bytes]:
    """Return ARGV of lend.lua."""
    instance, limit, lease, weight, returned, held, target, waiting, extra, idle = ask
    numbers = f"{limit} {lease} {weight} {returned} {held} {target} {waiting} {extra} {idle}"
    return [instance, numbers, channel]


def read_slots(reply: Sequence[Any]) -> SlotReply:
    """Return the SlotReply in a reply of lend.lua; raise BucketUnavailable if it is none."""
    try:
        granted, token, keep, fresh, lent, limit, instances = map(int, reply)
    except (TypeError, ValueError) as error:
        raise BucketUnavailable(f"what lies at the limit's name is no limit: {error}") from error
    return SlotReply(granted, token, keep, bool(fresh), lent, limit, instances)


def read_push(message: str | bytes) -> tuple[str, SlotPush]:
    """Return the name of the limit and the SlotPush in a message of lend.lua."""
    text = message.decode() if isinstance(message, bytes) else message
    instance, granted, token, keep, name = text.split(" ", 4)
    return name, SlotPush(instance, int(granted), int(token), int(keep))
