"""One token bucket that hosts lease from: the arithmetic of `lua/*.lua`, in Python, for `memory://` and for proofs.

Why it never admits more than burst + rate * t, although hosts spend without asking: tokens that are leased and not
yet reported spent, given back or expired are *outstanding*, and refill stops where level + outstanding reaches the
burst. Whatever is spent in a window was in the bucket or outstanding when it opened, together at most the burst, or
flowed in since, at most rate * t.

Times are whole microseconds; within a bucket they count from its birth. The Lua files explain each rule; the names
here are theirs, and tests/lua holds the two copies against each other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota
from batchlimit.core.share import ALPHA, PACE, Band, bands_of, division, lease_of, pace_of

_ACTIVE = 1_000_000
_MARGIN = 1_000_000
_SECOND = 1_000_000


@dataclass(slots=True)
class _Host:
    """What the bucket knows of one host; `held` is outstanding until `expires`."""

    seq: int = -1
    held: int = 0
    expires: int = 0
    last: int = 0
    seen: int = 0
    granted: int = 0
    starts: int = 0


class _Reserved(NamedTuple):
    """Tokens that only one host may draw on, until it is served or `ends`."""

    name: str
    tokens: int
    ends: int


class Bucket:
    """The levels of one quota's bandwidths and what is leased of them; `now` is an instant in us, never a clock."""

    __slots__ = (
        "_active",
        "_bands",
        "_epoch",
        "_hosts",
        "_lasts",
        "_levels",
        "_now",
        "_outstanding",
        "_quota",
        "_reserved",
        "_swept",
        "_version",
    )

    def __init__(self, quota: Quota, now: int, fill: float = 1.0) -> None:
        self._quota, self._version, self._epoch, self._now = quota, 1, now, 0
        self._bands = bands_of(quota)
        self._levels: list[float] = [math.floor(band.burst * fill) for band in self._bands]
        self._hosts: dict[str, _Host] = {}
        self._outstanding = self._active = self._lasts = self._swept = 0
        self._reserved: _Reserved | None = None

    def __repr__(self) -> str:
        return f"<Bucket {self._quota}: levels {self._levels}, outstanding {self._outstanding}, hosts {self._active}>"

    def take(self, quota: Quota, ask: Ask, now: int) -> Grant:
        """Lease whole tokens to one host, from every bandwidth or from none, within the host's fair share."""
        self._refill(now)
        host = self._read(ask.host)
        self._sweep(ask.host)
        host = host or self._enter(ask.host)
        if ask.seq < host.seq:
            return self._grant(quota, host, 0, 0, 0, 0)
        if ask.seq == host.seq and host.granted > 0:
            starts_in = max(0, host.starts - self._now)
            return self._grant(quota, host, host.granted, host.held - host.granted, starts_in, 0)
        if quota != self._quota and ask.version in (0, self._version):
            self._reconfigure(quota)
        self._report(host, ask)
        return self._answer(quota, host, ask)

    def give_back(self, back: GiveBack, now: int) -> int:
        """Credit a host's unspent and refunded tokens, once, as far as there is room below the burst."""
        self._refill(now)
        host = self._read(back.host)
        if host and back.seq <= host.seq:
            return 0
        if back.refund > 0:
            host = host or self._enter(back.host)
        returned = back.refund + (self._settle(host, back) if host else 0)
        rooms = [max(0, band.burst - self._outstanding - level) for band, level in self._each()]
        self._levels = [level + min(returned, room) for level, room in zip(self._levels, rooms, strict=True)]
        return min(returned, *(math.floor(room) for room in rooms))

    def peek(self, now: int) -> Level:
        """Say what is in the bucket at `now`."""
        before = self._levels[:], self._now, self._reserved
        self._refill(now)
        level = self._lowest()
        self._levels, self._now, self._reserved = before
        return Level(level, self._outstanding, self._active)

    def expires_in(self) -> int:
        """Return after how many us without a call the bucket is as good as a new one."""
        to_full = max((band.burst - level) / band.rate for band, level in self._each())
        return math.ceil(to_full + lease_of(self._bands)) + _MARGIN

    def _each(self) -> Iterator[tuple[Band, float]]:
        return zip(self._bands, self._levels, strict=True)

    def _lowest(self) -> int:
        return math.floor(min(self._levels))

    def _refill(self, now: int) -> None:
        before, self._now = self._now, max(self._now, now - self._epoch)
        elapsed = self._now - before
        if self._reserved and self._reserved.ends <= self._now:
            self._reserved = None
        for i, (band, level) in enumerate(self._each()):
            room = band.burst - self._outstanding - level
            self._levels[i] = level + (max(0, room) if elapsed * band.rate >= room else elapsed * band.rate)

    def _release(self, host: _Host) -> None:
        if host.expires <= self._now:
            self._outstanding -= host.held
            host.held = host.granted = 0

    def _read(self, name: str) -> _Host | None:
        host = self._hosts.get(name)
        if host is None:
            return None
        self._release(host)
        if not self._is_gone(host):
            return host
        self._forget(name, host)
        return None

    def _is_gone(self, host: _Host) -> bool:
        return host.expires <= self._now and host.seen + _ACTIVE <= self._now

    def _forget(self, name: str, host: _Host) -> None:
        del self._hosts[name]
        self._active, self._lasts = self._active - 1, self._lasts - host.last

    def _enter(self, name: str) -> _Host:
        host = self._hosts[name] = _Host(last=self._now, seen=self._now)
        self._active, self._lasts = self._active + 1, self._lasts + self._now
        return host

    def _sweep(self, own: str) -> None:
        if self._now - self._swept < lease_of(self._bands):
            return
        self._swept = self._now
        for name, host in [each for each in self._hosts.items() if each[0] != own]:
            self._release(host)
            if self._is_gone(host):
                self._forget(name, host)

    def _reconfigure(self, quota: Quota) -> None:
        shares = [level / band.burst for band, level in self._each()]
        self._quota, self._version, self._bands = quota, self._version + 1, bands_of(quota)
        shares += [min(1, *shares)] * len(self._bands)
        self._levels = [
            min(share * band.burst, max(0, band.burst - self._outstanding))
            for band, share in zip(self._bands, shares, strict=False)
        ]

    def _report(self, host: _Host, ask: Ask) -> None:
        kept = min(ask.held, host.held)
        back = min(ask.back, host.held - kept)
        self._outstanding -= host.held - kept
        host.held = kept
        self._levels = [level + back for level in self._levels]

    def _settle(self, host: _Host, back: GiveBack) -> int:
        kept = min(back.held, host.held)
        unspent = min(back.tokens, host.held - kept)
        self._outstanding -= host.held - kept
        host.seq, host.held, host.granted = back.seq, kept, 0
        if kept == 0 and back.refund == 0:
            self._forget(back.host, host)
        return unspent

    def _answer(self, quota: Quota, host: _Host, ask: Ask) -> Grant:
        granted, wait, accrued = self._offer(host, ask)
        starts_in, max_wait = 0, round(ask.max_wait * _SECOND)
        if refused := granted < ask.need:
            starts_in = max(wait, math.ceil(min(pace_of(self._bands), max_wait)))
            granted = self._later(host, ask, starts_in) if wait <= max_wait else 0
            refused = granted < ask.need
        kept, host.seq, host.seen, host.granted = host.held, ask.seq, self._now, 0
        if refused:
            if accrued >= ask.need:
                self._reserve(ask, wait)
            return self._grant(quota, host, 0, kept, 0, wait)
        if ask.need > 0 and self._reserved and self._reserved.name == ask.host:
            self._reserved = None
        self._lend(host, granted, starts_in)
        if ask.need > 0 or (granted > 0 and granted >= accrued):
            self._serve(host, self._now + starts_in)
        return self._grant(quota, host, granted, kept, starts_in, 0)

    def _level_for(self, ask: Ask, level: float) -> float:
        return level - (self._reserved.tokens if self._reserved and self._reserved.name != ask.host else 0)

    def _reserve(self, ask: Ask, wait: int) -> None:
        if self._reserved is None or self._reserved.name == ask.host:
            self._reserved = _Reserved(ask.host, ask.need, self._now + wait + 2 * PACE)

    def _offer(self, host: _Host, ask: Ask) -> tuple[int, int, float]:
        granted: float = ask.want
        wait, accrued = 0.0, math.inf
        for band, whole in self._each():
            level = self._level_for(ask, whole)
            share, mine, fair = division(band, level, self._active, self._now, host.last, self._lasts, ask.need)
            soft = max(ALPHA * level / self._active, mine)
            cap = max(ask.queued, ALPHA * band.burst / self._active - host.held)
            granted = min(granted, level, fair, cap, max(ask.queued, soft))
            wait = max(wait, (ask.need - level) / band.rate, (ask.need - fair) / share)
            accrued = min(accrued, mine)
        return max(0, math.floor(granted)), math.ceil(wait) + 1, accrued

    def _later(self, host: _Host, ask: Ask, ahead: int) -> int:
        if self._reserved and self._reserved.name != ask.host:
            return 0
        granted: float = ask.queued
        for band, level in self._each():
            share, _, fair = division(band, level, self._active, self._now, host.last, self._lasts, ask.need)
            granted = min(granted, level + band.rate * ahead, fair + share * ahead, band.burst - self._outstanding)
        return math.floor(granted)

    def _lend(self, host: _Host, granted: int, starts_in: int) -> None:
        self._levels = [level - granted for level in self._levels]
        self._outstanding += granted
        host.held, host.granted, host.starts = host.held + granted, granted, self._now + starts_in
        host.expires = max(host.expires, host.starts + lease_of(self._bands))

    def _serve(self, host: _Host, at: int) -> None:
        self._lasts, host.last = self._lasts - host.last + at, at

    def _grant(self, quota: Quota, host: _Host, granted: int, kept: int, starts_in: int, retry_after: int) -> Grant:
        return Grant(
            granted=granted,
            kept=kept,
            starts_in=starts_in / _SECOND,
            lease=max(0, host.expires - self._now - starts_in) / _SECOND,
            retry_after=retry_after / _SECOND,
            level=self._lowest(),
            active_hosts=self._active,
            epoch=self._epoch,
            version=self._version,
            quota=None if quota == self._quota else self._quota,
        )
