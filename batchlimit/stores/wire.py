"""How an Ask, a GiveBack and a Grant travel: the arguments and replies that the headers of `lua/*.lua` list."""

from collections.abc import Sequence
from typing import Any

from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota

_SECOND = 1_000_000


def take_arguments(quota: Quota, ask: Ask) -> list[str]:
    """Return ARGV of take.lua."""
    who = (quota.encode(), ask.host, ask.seq, round(ask.age * _SECOND), ask.epoch, repr(ask.fill))
    what = (ask.need, ask.queued, ask.want, ask.held, ask.back)
    return _spelled(*who, *what, round(ask.max_wait * _SECOND), round(ask.round_trip * _SECOND), ask.weight)


def give_back_arguments(quota: Quota, back: GiveBack) -> list[str]:
    """Return ARGV of give_back.lua."""
    return _spelled(quota.encode(), back.host, back.seq, back.tokens, back.held, back.refund)


def read_grant(reply: Sequence[Any]) -> Grant:
    """Return the Grant in a reply of take.lua."""
    granted, kept, starts_in, lease, retry_after, level, active_hosts, epoch, version, config = reply
    told = config.decode() if isinstance(config, bytes) else config
    return Grant(
        granted=granted,
        kept=kept,
        starts_in=starts_in / _SECOND,
        lease=lease / _SECOND,
        retry_after=retry_after / _SECOND,
        level=level,
        active_hosts=active_hosts,
        epoch=epoch,
        version=version,
        quota=Quota.decode(told) if told else None,
    )


def read_level(reply: Sequence[int]) -> Level:
    """Return the Level in a reply of peek.lua."""
    return Level(*reply)


def _spelled(*values: str | int) -> list[str]:
    """Return them as text: hiredis crashes where a signal handler raises while it spells a number itself (3.5.0)."""
    return [str(value) for value in values]
