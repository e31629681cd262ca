"""What this process has leased of one bucket, who is in line for it, and what to do when it runs dry."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Literal

from batchlimit.core.batch import DEFAULT_SIZER, BatchSizer, Demand, Usage
from batchlimit.core.claim import NOW, Admit, Claim, Fail, Fetch, Refuse, Wait, Wakeable
from batchlimit.core.lease import Ask, GiveBack, Grant
from batchlimit.core.pace import Pace
from batchlimit.core.quota import LARGEST_BURST, Quota

Fill = Literal["full", "share", "empty"]
"""How full a bucket begins anew whose state was lost: the whole burst, one host's share of it, or nothing."""
_AHEAD = 1.0
"""How far in the future (s) a waiting caller's grant may begin: what bounds the debt of the bucket."""
_REST = 0.1
"""After a failure nothing is asked in the background for this long (s); a caller who comes still asks at once."""
_ROUND_TRIPS = 1.5
"""A prefetch leaves when what is left lasts this many round trips: one to travel, half a one for a surge."""


class Reservoir:
    """One key's leased tokens, its waiters, and the rules between them.

    No method blocks, reads a clock or talks to a store, and all but `denies` want the front's lock held. A front
    spends with `take`; when that fails it puts a Claim in line and calls `step` until it has a verdict, doing what it
    is told: Wait, or Fetch and report. After every call it wakes whom `to_wake` names.

    Callers are served in order of arrival. While anyone is in line the free tokens are set aside for the first of
    them (`_saved`), so small costs cannot starve a large one.
    """

    __slots__ = (
        "_asks", "_awake", "_base", "_coming", "_demand", "_epoch", "_fetch", "_fill", "_host", "_idle_after",
        "_last_want", "_level", "_line", "_lost_seq", "_pace", "_recorded", "_rest_until", "_round_trip", "_saved",
        "_seqs", "_share", "_sizer", "_starts", "_turned_away", "_untouched", "_used", "_version", "admitted",
        "calls", "expires", "hungry", "largest", "low", "quota", "refused", "retired", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        quota: Quota,
        host: str,
        seqs: Iterator[int],
        now: float,
        *,
        sizer: BatchSizer = DEFAULT_SIZER,
        fill: Fill = "share",
        idle_after: float = 10.0,
    ) -> None:
        self._obey(quota)
        self.tokens = 0
        self.low = 0
        self.expires = now
        self.hungry = self.retired = False
        self.admitted = self.refused = self.calls = 0
        self._host, self._seqs, self._sizer, self._fill, self._idle_after = host, seqs, sizer, fill, idle_after
        self._demand, self._pace, self._line = Demand(now), Pace(), deque[Claim]()
        self._saved = self._coming = self._base = self._recorded = self._last_want = self._level = 0
        self._turned_away = 0
        self._version = self._epoch = 0
        self._share, self._round_trip, self._starts, self._used = 1.0, 0.0, now, now
        if quota.denies_all:
            self._pace.dry_until = math.inf
        self._untouched = True
        self._rest_until = -math.inf
        self._fetch: Fetch | None = None
        self._lost_seq: int | None = None
        self._awake: list[Claim] = []

    def __repr__(self) -> str:
        return f"<Reservoir {self.quota}: {self.tokens} tokens, {len(self._line)} in line, {self._pace}>"

    # Spending

    def take(self, cost: int) -> float:
        """Spend `cost` tokens and return the instant before which that counts; -inf if there are too few.

        The caller reads its clock after this and is admitted if it reads less: a process that was stopped past its
        lease finds out at the moment of spending.
        """
        left = self.tokens - cost
        if left < self.low:
            return -math.inf
        self.tokens = left
        return self.expires

    def took_late(self, cost: int) -> None:
        """Uncount tokens that `take` gave too late to be spent."""
        self._base -= cost

    def denies(self, cost: int, now: float) -> float:
        """Return how long (s) to refuse `cost` from memory, 0.0 not at all. Safe without the lock: two reads."""
        return self._pace.pause(cost, now) if self.tokens < cost <= self.largest else 0.0

    # Waiting in line

    def join(self, cost: int, deadline: float, waker: Wakeable) -> Claim:
        """Put a caller in line; with a deadline of NOW it takes the first answer."""
        claim = Claim(cost, deadline, waker)
        self._line.append(claim)
        self._saved, self.tokens = self._saved + self.tokens, 0
        return claim

    def step(self, claim: Claim, now: float) -> Admit | Refuse | Fail | Wait | Fetch:
        """Say what the caller with this claim does next."""
        self._advance(now)
        if isinstance(claim.verdict, Admit) and now >= claim.verdict.before:
            self._rejoin(claim)
        if claim.verdict is not None:
            return claim.verdict
        if NOW < claim.deadline <= now:
            return self._refuse(claim, max(self._pace.pause(claim.cost, now), 0.0))
        if self._fetch is not None:
            return Wait(_within(math.inf, claim.deadline, now))
        if (pause := self._pace.pause(claim.cost, now)) == 0.0:
            return self._ask(now)
        if now + pause > claim.deadline or pause == math.inf:
            return self._refuse(claim, pause)
        return Wait(_within(pause, claim.deadline, now))

    def leave(self, claim: Claim, now: float) -> None:
        """Take a caller out of line whatever its verdict; tokens that it was given stay here for others."""
        if claim.verdict is None:
            self._remove(claim)
        elif isinstance(claim.verdict, Admit) and now < claim.verdict.before:
            self._saved += claim.cost
        self._serve()

    def to_wake(self) -> list[Claim]:
        """Return the claims that have something to learn since the last call; wake them without the lock."""
        awake, self._awake = self._awake, []
        return awake

    # Talking to the store

    def granted(self, fetch: Fetch, grant: Grant, now: float, jitter: float) -> None:
        """Take in the answer to `fetch`; `jitter` is a random factor of about 1."""
        self._count(now)
        self._fetch = self._lost_seq = None
        self._learn(fetch, grant, now)
        self._pace.learn(fetch, grant, self.quota, self._demand.rate, now, jitter)
        self._credit(fetch, grant, now)
        self._advance(now)
        if not fetch.repeated:
            self._refuse_asked(max(grant.retry_after, self._pace.dry_until - now))
        self._refuse_hopeless(now)
        self._aim(now)
        self._wake_first()

    def failed(self, fetch: Fetch, error: Exception | None, now: float) -> None:
        """Take note that `fetch` had no answer; None: its thread was interrupted, and another is to ask again.

        The ask may have been carried out all the same, so the next one repeats its number and gets the same tokens.
        """
        self._fetch, self._lost_seq = None, fetch.ask.seq
        self._rest_until = now + _REST
        for claim in [each for each in self._line if each.asked]:
            claim.asked = False
            if error is not None:
                self._dismiss(claim, Fail(error))
        self._serve()
        self._wake_first()

    def due(self) -> float:
        """Return the instant at which `tend` has something to do, if nothing happens before; inf: never."""
        if self.retired or self._line or self._fetch is not None:
            return math.inf  # whoever is in line, or fetches, looks after it
        if self.hungry:
            return self._rest_until
        if self.tokens + self._coming == 0:
            return self._used + self._idle_after
        margin = max(2 * self._round_trip, 0.1 * (self.expires - self._starts))
        return max(self.expires - margin, self._rest_until)

    def tend(self, now: float) -> Fetch | GiveBack | None:
        """Say what there is to do when no caller is here, if anything.

        Tokens in use are renewed before they expire; tokens nobody used go back; a reservoir that was empty and
        unused for `idle_after` retires, and a front must not use it any more.
        """
        self._advance(now)
        if self.due() > now:
            return None
        if self.hungry:
            return self._ask(now)
        if self.tokens + self._coming == 0:
            self.retired = True
            return None
        return self.drain() if self._untouched else self._renew(now)

    def close(self, error: Exception) -> GiveBack | None:
        """Fail whoever is in line, retire, and let go of all tokens."""
        for claim in list(self._line):
            self._dismiss(claim, Fail(error))
        self.retired = True
        return self.drain()

    def drain(self) -> GiveBack | None:
        """Let go of all free tokens; None when there are none."""
        tokens, self._base = self.tokens + self._saved + self._coming, self._base - self.tokens - self._saved
        self.tokens = self.low = self._saved = self._coming = self._recorded = 0
        return self._return(tokens, 0, 0) if tokens else None

    def refund(self, cost: int, now: float) -> GiveBack | None:
        """Take back `cost` spent tokens; what exceeds the lease they came from is returned, to go to the store.

        The store still counts all of this lease as ours until we report it spent, so within it a refund is free.
        """
        self._advance(now)
        if self.quota.denies_all:
            return None  # nothing was ever admitted
        room = self._recorded - self.tokens - self._saved - self._coming if now < self.expires else 0
        here = max(0, min(cost, room))
        self.tokens += here
        self._base += here
        self._pace.forget()
        self._serve()
        self._wake_first()
        held = self.tokens + self._saved + self._coming
        return self._return(0, held, cost - here) if cost > here else None

    def remaining(self, now: float) -> int:
        """Return how many tokens this host could still admit, by what it has and by what it last saw in the bucket."""
        return max(0, self._level) + (self.tokens if now < self.expires else 0)

    def figures(self) -> tuple[int, int, int, int, int]:
        """Return (admitted, refused, calls, held, waiting) up to this moment: tokens, but for `calls` and `waiting`."""
        pool = self.tokens + self._saved
        return self.admitted + self._base - pool, self.refused, self.calls, pool + self._coming, len(self._line)

    # The rules within

    def _obey(self, quota: Quota) -> None:
        self.quota = quota
        self.largest = LARGEST_BURST if quota.denies_all else quota.largest_cost

    def _count(self, now: float) -> None:
        """Find out what was spent and refused since the last count; the hit path itself counts nothing."""
        pool = self.tokens + self._saved
        spent, self._base = self._base - pool, pool
        turned_away, self._turned_away = self.refused - self._turned_away, self.refused
        self.admitted += spent
        self._demand.observe(spent + turned_away, now)
        if spent or turned_away:
            self._used = now
        self._untouched = self._untouched and not spent

    def _advance(self, now: float) -> None:
        self._count(now)
        if self._coming and now >= self._starts:
            self._saved += self._coming
            self._base += self._coming
            self._coming = 0
        if now >= self.expires:
            self.tokens = self._saved = self._base = self._coming = 0
        self._serve()
        if self.tokens < self.low and self._fetch is None:
            self.low, self.hungry = 0, True

    def _serve(self) -> None:
        pool, served = self.tokens + self._saved, False
        while self._line and self._line[0].cost <= pool:
            pool, served = pool - self._line[0].cost, True
            self._dismiss(self._line[0], Admit(self.expires))
        self.tokens, self._saved = (0, pool) if self._line else (pool, 0)
        if served:
            self._wake_first()

    def _dismiss(self, claim: Claim, verdict: Admit | Refuse | Fail) -> None:
        self._line.remove(claim)
        claim.verdict = verdict
        self._awake.append(claim)

    def _refuse(self, claim: Claim, retry_after: float) -> Refuse:
        self.refused += claim.cost
        verdict = claim.verdict = Refuse(retry_after)
        self._remove(claim)
        self._serve()
        return verdict

    def _remove(self, claim: Claim) -> None:
        first = self._line[0] is claim
        self._line.remove(claim)
        if first:
            self._wake_first()

    def _rejoin(self, claim: Claim) -> None:
        """Put a caller back first in line whose tokens expired before it woke."""
        claim.verdict, claim.asked = None, False
        self._line.appendleft(claim)
        self.admitted -= claim.cost
        self._serve()

    def _wake_first(self) -> None:
        """Someone must watch the clock for the line, and fetch: whoever is first."""
        if self._line and self._fetch is None:
            self._awake.append(self._line[0])

    def _refuse_asked(self, retry_after: float) -> None:
        for claim in [each for each in self._line if each.asked and each.deadline == NOW]:
            self.refused += claim.cost
            self._dismiss(claim, Refuse(retry_after))
        self._serve()

    def _refuse_hopeless(self, now: float) -> None:
        for claim in [each for each in self._line if now + self._pace.pause(each.cost, now) > each.deadline > NOW]:
            self.refused += claim.cost
            self._dismiss(claim, Refuse(self._pace.pause(claim.cost, now)))
        self._serve()

    def _return(self, tokens: int, held: int, refund: int) -> GiveBack:
        self.calls += 1
        return GiveBack(self._host, next(self._seqs), tokens, held, refund)

    def _ask(self, now: float, back: int = 0) -> Fetch:
        first = self._line[0] if self._line else None
        pool = self.tokens + self._saved
        queued = max(0, sum(claim.cost for claim in self._line) - pool)
        target = self._sizer.want(Usage(self.quota, self._demand.rate, self._last_want, pool))
        self._last_want = max(queued, target - pool, 0)
        for claim in self._line:
            claim.asked = True
        ask = Ask(
            host=self._host,
            seq=next(self._seqs) if self._lost_seq is None else self._lost_seq,
            need=first.cost - pool if first else 0,
            queued=queued,
            want=self._last_want,
            held=pool + self._coming,
            back=back,
            max_wait=max(0.0, min(_AHEAD, first.deadline - now)) if first else 0.0,
            version=self._version,
            epoch=self._epoch,
            fill={"full": 1.0, "share": self._share, "empty": 0.0}[self._fill],
        )
        self.hungry, self.low = False, 0
        self.calls += 1
        self._fetch = Fetch(ask, self.quota, now, first.cost if first else 0, self._lost_seq is not None)
        return self._fetch

    def _renew(self, now: float) -> Fetch:
        """Ask again before the lease ends, and return what the present demand will not use up."""
        target = self._sizer.want(Usage(self.quota, self._demand.rate, self._last_want, self.tokens))
        back = max(0, self.tokens - target)
        self.tokens -= back
        self._base -= back
        return self._ask(now, back)

    def _learn(self, fetch: Fetch, grant: Grant, now: float) -> None:
        sample = now - fetch.sent
        self._round_trip += (sample - self._round_trip) * (0.2 if self._round_trip else 1.0)
        self._epoch, self._version, self._level = grant.epoch, grant.version, grant.level
        self._share = 1.0 / max(1, grant.active_hosts)
        if grant.quota is not None:
            self._obey(grant.quota)

    def _credit(self, fetch: Fetch, grant: Grant, now: float) -> None:
        if grant.kept < fetch.ask.held:
            self.tokens = self._saved = self._coming = 0
        if grant.starts_in > 0.0:
            self._coming += grant.granted
        else:
            self._saved += grant.granted
        self._starts = now + grant.starts_in
        self.expires = fetch.sent + grant.starts_in + grant.lease
        self._recorded = grant.kept + grant.granted
        self._base = self.tokens + self._saved
        self._untouched = True

    def _aim(self, now: float) -> None:
        """Set how few tokens are few enough to fetch more in the background."""
        few = math.ceil(self._demand.rate * self._round_trip * _ROUND_TRIPS)
        self.low = 0 if self._pace.pause(1, now) else min(few, self.tokens // 2)


def _within(seconds: float, deadline: float, now: float) -> float | None:
    """Return `seconds`, but no longer than a waiting caller's deadline; None for as long as it takes."""
    if deadline != NOW:
        seconds = min(seconds, deadline - now)
    return None if seconds == math.inf else seconds
