"""How an Ask, a GiveBack and a Grant travel: the arguments and replies that the headers of `lua/*.lua` list.

The numbers of an ask go as text on one line: as arguments of their own they would cost the caller 2 us more. (None goes
as a number: hiredis crashes where a signal handler raises while it spells one, 3.5.0.) Replies are integers, since a
caller's client may want all that it reads to be text.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import hiredis
from redis.exceptions import InvalidResponse

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota

NOTHING = object()
"""What a reader says where the next answer is not there yet, or not all of it."""
PUSH: tuple[type, ...] = (hiredis.PushNotification,) if hasattr(hiredis, "PushNotification") else ()
"""What a server says unasked, where the client speaks RESP3; hiredis before 3.2 has no such thing."""


def reader(error: Callable[[str], Exception]) -> hiredis.Reader:
    """Return what takes bytes in and gives answers out; `error` makes of what a server says in an error what it means.

    Raises InvalidResponse where the bytes are no answer.
    """
    return hiredis.Reader(protocolError=InvalidResponse, replyError=error, notEnoughData=NOTHING)


_SECOND = 1_000_000


def command(*words: str | bytes) -> bytes:
    """Return a command as it is sent."""
    pack: Any = hiredis.pack_command  # its stub knows commands of one word only
    sent: bytes = pack(words)
    return sent


def take_arguments(quota: Quota, ask: Ask) -> list[str | bytes]:
    """Return ARGV of take.lua."""
    instance, seq, need, queued, want, held, back, max_wait, age, epoch, fill, round_trip, weight = ask
    wait, old, trip = round(max_wait * _SECOND), round(age * _SECOND), round(round_trip * _SECOND)
    told = f"{seq} {old} {epoch} {fill} {need} {queued} {want} {held} {back} {wait} {trip} {weight}"
    return [spelled(quota), instance, told]


def give_back_arguments(quota: Quota, back: GiveBack) -> list[str | bytes]:
    """Return ARGV of give_back.lua."""
    return [spelled(quota), back.instance, f"{back.seq} {back.tokens} {back.held} {back.refund}"]


def peek_arguments(quota: Quota) -> list[str | bytes]:
    """Return ARGV of peek.lua."""
    return [spelled(quota)]


@lru_cache(maxsize=1024)
def spelled(quota: Quota) -> str:
    """Return what the bucket keeps of a quota, by which it sees whether instances agree."""
    return quota.encode()


def read_grant(reply: Sequence[Any]) -> Grant:
    """Return the Grant in a reply of take.lua; BucketUnavailable if that is none, of a bucket that somebody damaged."""
    try:
        return _grant(reply)
    except (TypeError, ValueError) as error:
        raise BucketUnavailable(f"what lies at the bucket's name is no bucket: {error}") from error


def _grant(reply: Sequence[Any]) -> Grant:
    granted, kept, starts_in, lease, retry_after, level, active_instances, epoch, version, config = reply
    starts_in, lease, retry_after = starts_in / _SECOND, lease / _SECOND, retry_after / _SECOND
    told = config.decode() if isinstance(config, bytes) else config
    quota = Quota.decode(told) if told else None
    if quota is not None and quota.denies_all:
        raise ValueError(f"its quota is {str(quota)!r}, which no limiter writes: delete it, or use another prefix")
    return Grant(granted, kept, starts_in, lease, retry_after, level, active_instances, epoch, version, quota)


def read_level(reply: Sequence[int]) -> Level:
    """Return the Level in a reply of peek.lua."""
    return Level(*reply)
