"""The requests of one key: Ask and GiveBack, each with a number of its own, and one in flight at a time.

Below the low watermark more tokens are fetched in the background, so that no caller waits for them.
"""

import math

from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.quota.grammar import LARGEST_WEIGHT
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.sizing import Usage, wanted
from batchlimit.reservoir.waiter import Fetch, Waiter

AHEAD = 1.0
"""How far in the future (s) a waiting caller's grant may begin, at the most: what bounds the debt of the bucket."""

_ROUNDING = 1.5e-6
"""Seconds: the bucket rounds its waits up, by one or two microseconds."""
_SILENCE = 0.1
"""After a failure nothing is asked in the background for this long (s); a caller who comes still asks at once."""
_LONG_SILENCE = 1.0
"""The same while the circuit is open: a thousand keys with refunds must not keep the background thread busy."""

_ROUND_TRIPS = 1.5
"""A prefetch leaves when what is left lasts this many round trips: one to travel, half a one for a surge."""
_BRIEF = 0.002
"""Seconds. Tokens that are spent faster have no low watermark: the background thread would not run in that time. It
would be woken in vain, and a caller would ask for itself: with eight threads that took a sixth of the throughput."""
_LONG = 0.05
"""Seconds. Tokens that are spent faster are not checked: a refill 4 ms early would make a tenth more requests."""
_MANY = 256
"""Fewer tokens than this are not checked either: four checks take 60 us of work. Where calls are rare, the last check
comes too late by chance for a third of all batches."""
_SOON = 0.004
"""Seconds. A check that expects the low watermark to be reached sooner starts a refill. A thread wakes up within
0.1 ms, or within 5 ms where another thread computes."""
_EARLY = 0.003
"""Seconds before the low watermark is expected to be reached: the latest time of the next check."""
_PART = 0.25
"""The next check comes when this part of the expected time is left, if that is earlier."""


def low_mark(tokens: int, demand: float, round_trip: float) -> int:
    """Return how few of `tokens` last for an answer: one more, for who comes then; 0: callers may run dry."""
    if tokens < _BRIEF * demand or not demand * round_trip:
        return 0
    return min(math.ceil(demand * round_trip * _ROUND_TRIPS) + 1, tokens // 2)


def first_look(tokens: int, low: int, demand: float) -> float:
    """Return in how many seconds to look at tokens that just came; inf: callers may come upon the mark."""
    is_worth_it = tokens >= _MANY and tokens - low >= _LONG * demand
    return next_look(tokens - low, demand) if is_worth_it else math.inf


def next_look(spare: int, demand: float) -> float:
    """Return in how many seconds to look again at tokens of which so many are above the mark; 0.0: fetch more."""
    if not demand:
        return math.inf
    lasts = spare / demand
    return lasts - max(_EARLY, _PART * lasts) if lasts > _SOON else 0.0


class Requests:
    """Builds and numbers the requests; Reservoir says when, and takes in the answers.

    The bucket knows an instance by the last number that it had. So a request begins only when none is in flight
    (`state.in_flight`), and an Ask without an answer is repeated with its number: the bucket then grants the same.

    Before the tokens here run out more are fetched in the background. `checks_at` is when `tend` looks at their number
    (inf: not at all), and renews them if it is time to. `wants_refill` says that a caller found fewer than
    `tokens.low_watermark`: the next `tend` asks for more. It has 13 public methods: all but two begin or end a request,
    or say when one is due.
    """

    __slots__ = (
        "_instance", "_options", "_state", "checks_at", "last_target", "lost_number", "refunds", "refusals_told",
        "shadow_told", "silent_until", "wants_refill",
    )  # fmt: skip

    def __init__(self, state: KeyState, instance: Instance, options: Options) -> None:
        self._state, self._instance, self._options = state, instance, options
        self.wants_refill, self.checks_at = False, math.inf
        self.refunds = 0  # tokens to send back with the next GiveBack
        self.last_target = 0  # how many tokens the last Ask wanted
        self.lost_number: int | None = None  # of an Ask that had no answer
        self.refusals_told = 0  # tokens refused to callers, as far as the bucket knows of them
        self.shadow_told = 0  # and those that were only to be refused
        self.silent_until = LONG_AGO  # nothing is sent in the background before

    def ask(
        self,
        now: float,
        waiter: Waiter | None = None,
        back: int = 0,
        *,
        target: int | None = None,
        ahead: float = math.inf,
    ) -> Fetch:
        """Ask for the waiters, and for as many tokens as make `target` with those here (None: what the sizer wants).

        So many of those that are here are given `back`. A waiting caller's grant begins `ahead` seconds later, at most.
        """
        state, lease, first = self._state, self._state.lease, self._state.queue.first
        here = 0 if lease.is_counted_as_spent and first else lease.leased  # those are gone with the answer
        needed = 0 if first is None else state.cost_of(first)
        queued = max(0, state.queue.cost - here)
        want = max(queued, (self._target(here) if target is None else target) - here)
        for each in state.queue.hasty:
            each.asked += 1
        max_wait = 0.0
        if first is not None and first.deadline > now:
            max_wait = min(ahead, self._furthest, first.deadline - now)
        return self._send(now, waiter, needed, (max(0, needed - here), queued, want), back, max_wait)

    def adopt(self, fetch: Fetch, waiter: Waiter) -> None:
        """Have an Ask in flight that was sent already, for this waiter."""
        waiter.asked = 1
        self._state.calls += 1
        self.last_target = fetch.ask.want
        self._begin(fetch, waiter)

    def renew(self, now: float) -> Fetch:
        """Ask again before the lease ends, and give back the tokens that the present demand will not use up."""
        tokens = self._state.tokens
        left = tokens.reclaim()
        back = 0 if self._state.lease.may_count_as_spent else max(0, left - self._target(left))
        tokens.add(-back)
        return self.ask(now, back=back)

    def repay(self, waiter: Waiter | None = None) -> GiveBack | None:
        """Send the refunds, if there are any and nothing is in flight."""
        return self.give_back(0, waiter) if self.refunds and self._state.in_flight is None else None

    def give_back(self, tokens: int, waiter: Waiter | None = None) -> GiveBack:
        """Send tokens back, and refunds with them. A lost Ask is not repeated after this: its number is too old."""
        self._state.calls += 1
        instance, held = self._instance, self._state.lease.report()
        back = GiveBack(instance.name, next(instance.numbers), tokens, held, self.refunds)
        self.refunds, self.lost_number = 0, None
        self._begin(back, waiter)
        return back

    def granted(self, fetch: Fetch) -> None:
        """Take note that an Ask had its answer, so the bucket knows of the refusals that it told."""
        self._state.in_flight = self.lost_number = None
        self.refusals_told += fetch.ask.refused
        self.shadow_told += fetch.ask.shadow_refused

    def lost(self, fetch: Fetch, error: Exception | None, now: float) -> None:
        """Take note that an Ask had no answer; if it was sent, the bucket may have carried it out all the same."""
        self._state.in_flight = None
        for waiter in self._state.queue.hasty:
            waiter.asked = 0
        self.silent_until = now + _SILENCE
        if isinstance(error, CircuitOpen):
            self._unsent(now)
        else:
            self.lost_number = fetch.ask.seq

    def gave_back(self, unsent: GiveBack | None, now: float, back: GiveBack | None = None) -> None:
        """Take note that `back` has ended; if it was not sent, its refunds go with the next one.

        What an ask has told that was under way when tokens were refunded is not true any more.
        """
        ended = self._state.in_flight if back is None else back
        if self._state.in_flight is ended:
            self._state.in_flight = None
        if unsent is None and isinstance(ended, GiveBack) and ended.refund:
            self._state.denials = NO_DENIALS
        if unsent is not None:
            self._unsent(now)
            self.refunds += unsent.refund

    def set_watermark(self, now: float) -> None:
        """After a grant: set the low watermark, and when to check it."""
        state = self._state
        demand, tokens = state.demand.rate, state.tokens.available
        low = 0 if state.denials.dry_for(1, now) else low_mark(tokens, demand, state.view.round_trip)
        state.tokens.set_low_watermark(low)
        self.checks_at = now + first_look(tokens, low, demand) if low else math.inf

    def check_watermark(self, now: float) -> None:
        """Set the next check: now, if it is time to fetch more, shortly before callers come upon the watermark."""
        tokens = self._state.tokens
        if not tokens.low_watermark:
            self.checks_at = math.inf  # the tokens expired or were given back, or a caller came upon the watermark
        elif now >= self.checks_at:
            self.checks_at = now + next_look(tokens.available - tokens.low_watermark, self._state.demand.rate)

    def want_refill(self) -> None:
        """Fewer tokens are here than the low watermark: from now on they may be spent, and more are wanted."""
        self._state.tokens.low_watermark, self.wants_refill = 0, True

    def take_low(self, cost: int) -> float:
        """Spend some of the last tokens and want a refill; as `FreeTokens.take`, after that found too few.

        One caller of each lease reaches the low watermark, and does not wait. By way of the queue it took 200 us:
        after a thousand hits none of that code is in the processor's cache.
        """
        state, tokens = self._state, self._state.tokens
        if not tokens.low_watermark or cost > tokens.available or state.queue or state.in_flight is not None:
            return LONG_AGO
        self.want_refill()
        return tokens.take(cost)

    def stop(self) -> None:
        """A request is sent, so nothing is wanted or checked until its answer."""
        self._state.tokens.low_watermark, self.checks_at, self.wants_refill = 0, math.inf, False

    @property
    def _furthest(self) -> float:
        """How far in the future (s) a waiting caller's grant may begin: as far as the bucket takes to fill.

        A grant that begins later keeps the bucket from filling meanwhile, for all instances. With it, four instances at
        a burst of 1 that each waited for its share used 49 % of the rate. One that we began to spend early is paid back
        after a round trip.
        """
        quota = self._state.quota
        fills_in = min(each.burst / each.rate for each in quota.bandwidths) if quota.also else quota.burst / quota.rate
        furthest = fills_in + _ROUNDING if fills_in <= AHEAD else AHEAD
        return furthest + (self._state.view.round_trip if self._state.lease.whole_burst else 0.0)

    def _target(self, left: int) -> int:
        """Return how many tokens the sizer wants to be here, where `left` are."""
        state = self._state
        usage = Usage(state.quota, state.demand.rate, self.last_target, left, state.view.is_rich(state.largest_cost))
        return wanted(self._options.sizer, usage)

    def _send(
        self, now: float, waiter: Waiter | None, needed: int, tokens: tuple[int, int, int], back: int, max_wait: float
    ) -> Fetch:
        """Begin an Ask for so many `tokens`: what the first waiter needs, what is queued, and what is wanted."""
        state, lost = self._state, self.lost_number
        self.last_target, whole_burst = tokens[-1], state.lease.whole_burst
        held, age = state.lease.report(), max(0.0, now - state.rank.since)
        number = next(self._instance.numbers) if lost is None else lost
        known = state.view.expected(state.quota, now)
        who, weight = self._instance.name, state.weight or self._options.weight
        state.told_priority = priority = state.queue.highest_priority
        if priority > 1:  # who is urgent here comes before the others elsewhere
            weight = min(weight * priority, LARGEST_WEIGHT)
        rank = state.edition, state.rank.revision, now >= self._instance.rules.looks_at
        untold = state.tokens.refused - self.refusals_told, max(0, state.shadow_refused - self.shadow_told)
        ask = Ask(who, number, *tokens, held, back, max_wait, age, *known, weight, *rank, *untold)
        self.stop()
        self._state.calls += 1
        fetch = Fetch(ask, state.own, now, needed, lost is not None, whole_burst)
        self._begin(fetch, waiter)
        return fetch

    def _unsent(self, now: float) -> None:
        self._state.calls -= 1
        self.silent_until = now + _LONG_SILENCE

    def _begin(self, request: Fetch | GiveBack, waiter: Waiter | None) -> None:
        """Have a request in flight. Its caller knows of it first, so that it can give it up when interrupted."""
        if waiter is not None:
            waiter.request = request
        self._state.in_flight = request
