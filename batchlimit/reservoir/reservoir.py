"""One key's leased tokens in this process: the theory of operation.

The bucket of a key is in the store. Each process leases tokens of it in batches, and callers spend those from memory.

What is promised, provided that the clocks of process and store run at the same speed:

1. All processes together admit no more than the bucket granted, and spend no token after its lease ends. More is
   admitted in mode "shadow" or "open", and in an outage by `on_failure` "open" or "local". A `debit` goes beyond it
   too, for its tokens were used before anybody asked.
2. Waiters are served in order of arrival, or in turns by priority. One with a timeout leaves at its deadline; if it
   asks just then, it leaves with the answer. A hopeless one leaves at once. One with timeout 0 (`NO_WAIT`) leaves
   once this process knows that the bucket is short. Else it leaves by the answer to an ask sent since it came; or to
   the next, if that was repeated or its tokens came too late. If the store fails, it fails, or the fallback decides.
3. A limiter has one Ask or GiveBack per key in flight, whatever the number of callers. A `peek` goes beside it.
4. A caller may be interrupted at any line. That may lose a refund, or tokens until their lease ends; it creates none.

The parts. All of them share one `KeyState`; each is given the parts that it needs:

| part                     | what it does                                                              |
|--------------------------|---------------------------------------------------------------------------|
| `state.tokens`           | FreeTokens: tokens that any caller may spend; a hit takes one, no lock    |
| `state.lease`            | Lease: all that is leased, until when; some reserved, some begins later   |
| `state.queue`            | WaitQueue: the waiters in their order; its leader watches the clock       |
| `state.view`, `.denials` | BucketView, DenialCache: what the bucket last said; when not to ask it    |
| `state.fallback`         | Fallback: grants tokens in the bucket's place while the store is away     |
| `state.overdraft`        | Overdraft: what was used beyond an estimate; a waiter without a caller    |
| `forecast`               | answers from memory: admit, refuse or ask the store; builds the Decisions |
| `admission`              | serves, refuses or queues callers                                         |
| `requests`               | builds Ask and GiveBack; says when to ask, before the tokens run out      |
| `outage`                 | Outage: if nothing lends, callers fail, or wait until the next ask        |
| `rule`                   | goes by the code, by a file of limits, or by an operator's override       |
| `lifecycle`              | corrects what was charged, renews and returns tokens; ends the key        |

The states. A reservoir is in three at a time: one of the first two, one of the next two, one of the last three.

| state     | it means                          | it ends when                                                     |
|-----------|-----------------------------------|------------------------------------------------------------------|
| quiet     | no request is in flight           | `step`, `adopt` or `lifecycle` begins a request                 |
| in flight | `state.in_flight` is that request | `granted`, `failed` or `gave_back` reports, or its thread leaves |
| leased    | the tokens here are the bucket's  | the fallback lends: the store is away, or the mode is "open"     |
| fallback  | `state.lease.borrowed`            | a Grant arrives, or the mode "open" ends; what is left goes      |
| live      | callers are served here           | nobody waits or uses the key, or room is made, or close          |
| retired   | the next use makes another one    | never; `step` says Retired to a waiter whose tokens expired      |
| closed    | retired, and `lifecycle.ended`    | never; `step` says Fail to a waiter without a verdict            |

Beside these, `state.mode` says what becomes of decisions. In "enforce" they hold. In "shadow" nobody waits or is
refused; refusals are counted. In "open" everything is admitted: the fallback lends. `state.trial` counts what another
one refuses. `rule.reconsider` sets both.

Between two calls, no more of the bucket's tokens are here than it last counted as leased here. While anybody waits none
is free: what has begun is reserved for the waiters, the first one first, and what begins later is pending.

The calls. No method reads a clock or asks a store: the key entry of an API does. That of threads (sync/key_entry.py)
holds the key's lock for each call that is not said to need none; that of tasks (aio/) has no lock. Three methods call
out: `step` and `tend` run the user's sizer; `step` and `granted` may have the API read the overrides.

- A `try_acquire` of one token is a step of the iterator `tokens.lock_free`, and its refusal a look at
  `tokens.denied_until`: both need no lock. The iterator ends at the low watermark. There and elsewhere `tokens.take`
  spends; `admission.deny` refuses `try_acquire` and `decide_all`, and `step` the others. The first caller to meet the
  watermark spends by `requests.take_low`, and `lifecycle.tend` asks for more.
- A miss: `admission.join` puts a Waiter in the queue. The API calls `step` until there is a verdict. Until then a step
  is a Wait, to sleep and step again, or a Fetch, to send its Ask and report the answer by `granted` or `failed`. It is
  a Wait while a request is in flight or held up, just after one failed, or while an ask would be in vain. Then the
  leader steps again after that time, for all. A caller that is interrupted calls `leave`. A task's waiter is
  `tentative`, for a task may be cancelled before it wakes. An Ask reports its tokens as held until `admission.confirm`.
- The background thread or the loop's timer calls `lifecycle.tend` at `lifecycle.due()`: it may retire the reservoir, or
  return an Ask (renewal, prefetch, debt) or a GiveBack. `gave_back` reports its end.
- A call at a key not in use spends: `keyspace/spending.py`. If that is in vain, a reservoir begins by `adopt`.
- `lifecycle.refund` puts tokens back into the lease; a GiveBack takes the rest to the bucket. `lifecycle.debit`
  puts the overdraft last in the queue. The end: `lifecycle.close`, `last_ask` for what is owed or lost, `drain`.
- After a call that may concern waiters the API takes `to_wake`, which sets `denied_until`, and wakes these unlocked.
"""

import math

from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.overrides.overrides import NONE
from batchlimit.reservoir.admission import QueueAdmission
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.denial_cache import NO_DENIALS, PLENTY, DenialCache
from batchlimit.reservoir.forecast import Forecast
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.lifecycle import Lifecycle
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.outage import Outage, fall_back
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.rule_in_force import RuleInForce
from batchlimit.reservoir.sizing import Demand
from batchlimit.reservoir.waiter import RETIRED, Admit, Fail, Fetch, Verdict, Wait, Waiter, wait_for


class Reservoir:
    """The state machine; see the top of this file."""

    __slots__ = (
        "_rules", "admission", "forecast", "lifecycle",
        "outage", "requests", "rule", "state", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        rule: KeyRule,
        instance: Instance,
        options: Options,
        now: float,
        *,
        rank: Rank,
        key: str = "",
        policy: FailurePolicy = CLOSED,
        snapshot: KeySnapshot | None = None,
    ) -> None:
        """Begin with nothing leased. The code, of this `rank`, has `rule` and `policy` for the key."""
        self._rules = instance.rules
        state = self.state = KeyState(rule.quota, policy, options.fill, instance.count, now, key, rank)
        self.tokens = state.tokens  # one look less for every hit
        self.forecast, self.requests = forecast, requests = Forecast(state), Requests(state, instance, options)
        self.admission = QueueAdmission(state, forecast, requests)
        self.outage: Outage | None = None  # where nothing lends: from a failed request until an answer
        self.lifecycle = Lifecycle(state, self.admission, requests, options.idle_after)
        if snapshot is not None:
            state.demand = Demand(snapshot.counted_at, snapshot.demand)
            self.requests.last_target = int(snapshot.last_want)
            state.view.recall(snapshot)
        self.rule = RuleInForce(state, self.admission, requests, instance.rules, rule, policy)
        if instance.rules.in_force is not NONE or not rule.is_plain or state.denies_all:
            self.rule.reconsider(now)

    def adopt(self, waiter: Waiter, fetch: Fetch) -> bool:
        """Begin with this in flight, which was sent before there was a reservoir; False: another one was faster."""
        if self.state.is_retired or self.state.calls or self.state.queue:
            return False
        self.admission.join(waiter)
        self.state.count(fetch.sent)
        self.requests.adopt(fetch, waiter)
        return True

    def step(self, waiter: Waiter, now: float) -> Verdict | Wait | Fetch:
        """Say what the caller with this waiter does next."""
        state, queue = self.state, self.state.queue
        self.admission.advance(now)
        if waiter.verdict is not None or self.lifecycle.ended is not None:
            self._review(waiter, now)
            if waiter.verdict is not None:
                queue.withdraw(waiter)
                return waiter.verdict
        if state.mode == "open":
            verdict = self.rule.admit_freely(waiter, now)
            self._wake_next()
            return verdict or wait_for(0.0, waiter, now)
        if NO_WAIT < waiter.deadline <= now:
            return self.admission.turn_away(waiter, now) if self.outage is None else self.outage.time_is_up(waiter)
        if state.in_flight is not None or state.is_held_up:
            return wait_for(math.inf, waiter, now)
        if self.outage is not None and (seconds := self.outage.asks_again_in(waiter, now)) > 0.0:
            return wait_for(seconds if waiter is queue.leader else math.inf, waiter, now)
        if state.denies_all:
            self.rule.look_again(now)
        if not state.is_short(now) or (seconds := self.forecast.asks_in(waiter, now)) == 0.0:
            return self.requests.ask(now, waiter)
        if self.forecast.is_hopeless(waiter, now):
            return self.admission.turn_away(waiter, now)
        if waiter is not queue.leader:
            return wait_for(math.inf, waiter, now)
        self.admission.refuse_hopeless(now)  # those that came while a request was in flight: nobody told them yet
        return wait_for(seconds, waiter, now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Take a caller out of the queue, wherever it was interrupted; a request that it did not report has failed."""
        if (request := self.state.in_flight) is not None and waiter.request is request:
            if isinstance(request, Fetch):
                self.failed(request, None, now)
            else:
                self.gave_back(now)
        self.state.queue.withdraw(waiter)
        self.lifecycle.undo(waiter, now)

    def granted(self, fetch: Fetch, grant: Grant, now: float, jitter: float) -> None:
        """Take in the answer to `fetch`; `jitter` is a random factor of about 1."""
        state = self.state
        if state.in_flight is not fetch:
            return  # its caller was interrupted; if an Ask is next, it repeats the number, and gets these tokens
        state.count(now)
        self.outage = None
        self.requests.granted(fetch)
        state.view.learn(fetch, grant, now)
        begins = state.lease.begins(fetch, grant, now)
        if fetch.ask.look:
            self._rules.hear(grant.rules, now)
        if state.lease.borrowed or state.fallback.bucket is not None:
            state.fallback.end(state.lease, now)
        if fetch.quota is state.own or fetch.quota == state.own:
            state.is_outdated = False
            self.admission.obey(grant.quota or fetch.quota)
            # Urgent callers ask again at once, after some of what they need: for more that begins later. Spaced as the
            # asks of others at an empty bucket, one such instance of eight waited for up to .95 s, not .37, at 100/s.
            is_now = grant.starts_in == 0.0
            if (
                (is_now and grant.granted >= fetch.ask.need and grant.level >= jitter * PLENTY * state.largest_cost)
                or state.told_too_much
                or (is_now and grant.granted > 0 and state.queue.highest_priority > 1)
            ):
                state.denials = NO_DENIALS
            else:
                state.denials = DenialCache.learned(fetch, grant, state.quota, state.demand.rate, now, jitter, begins)
        self.requests.refunds += state.lease.credit(fetch, grant, now, begins, state.quota)
        if state.denies_all:
            state.lease.take_all()  # asked for before that was known; the bucket has them back when their lease ends
        state.is_untouched = True
        self.admission.advance(now, is_counted=True)
        self.admission.refuse_answered(now, fetch, grant)
        state.count(now)  # those served just now used the key now, and not at the next look
        if state.tokens.available:
            self.requests.set_watermark(now)
        if state.mode == "open":  # it was asked before that was known: its tokens go back
            state.is_outdated = True
        self._wake_next()

    def failed(self, fetch: Fetch, error: Exception | None, now: float) -> None:
        """Take note that `fetch` had no answer; None: its thread was interrupted, and another is to ask again."""
        if self.state.in_flight is not fetch:
            return  # it was reported before
        self.requests.lost(fetch, error, now)
        if error is not None and not fall_back(self.state, self.admission, self.requests.last_target, now):
            self.outage = Outage(self.state, self.admission, fetch, error)
            self.outage.fail_waiters(now)
        elif self.state.lease.borrowed:
            self.outage = None  # a file of limits may have changed `on_failure` meanwhile
        self.admission.serve()
        self._wake_next()

    def gave_back(self, now: float, unsent: GiveBack | None = None, back: GiveBack | None = None) -> None:
        """Take note that `back` (None: the request in flight) has ended, arrived or not; `unsent`: it was not sent.

        It is never repeated: leased tokens expire, and the refunds of an unsent one go with the next.
        """
        self.requests.gave_back(unsent, now, back)
        self.admission.advance(now)
        self._wake_next()

    @property
    def at_rest_until(self) -> float:
        """Nothing is due before this instant, for no token is here, wanted or owed, and nobody waits; -inf: unknown.

        `lifecycle.due` would say more. To ask that after every miss at a key in use took 3 % more instructions.
        """
        state = self.state
        is_busy = state.lease.held or state.queue.waiters or self.requests.refunds or self.requests.wants_refill
        return LONG_AGO if is_busy else state.used + self.lifecycle.stays_awake

    def to_wake(self) -> list[Waiter]:
        """Publish `tokens.denied_until`, and take the list of waiters to wake; to be called after every change."""
        self.state.publish()
        return self.state.queue.to_wake()

    def _review(self, waiter: Waiter, now: float) -> None:
        """Put a caller whose tokens expired before it woke back in its place, if its key is still served here.

        To the bucket, a retired reservoir is the same instance as the next one: its request would create tokens.
        """
        if isinstance(waiter.verdict, Admit) and now >= waiter.verdict.before:
            if self.state.is_retired and self.lifecycle.ended is None:
                waiter.verdict = RETIRED
            else:
                self.admission.rejoin(waiter, now - waiter.verdict.before)
        if self.lifecycle.ended is not None and waiter.verdict is None:
            self.state.queue.dismiss(waiter, Fail(self.lifecycle.ended))

    def _wake_next(self) -> None:
        """Wake the leader, who may send a request now, and the caller that closes."""
        self.state.queue.wake_leader()
        if self.lifecycle.closer is not None:
            self.state.queue.wake(self.lifecycle.closer)
