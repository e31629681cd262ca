"""Rules that can be broken on purpose, to see that the simulation notices."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from batchlimit.bucket import fair_share
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.instance_table import InstanceEntry, InstanceTable
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend, Spent
from batchlimit.bucket.spendable import SpendableBucket
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.rule_in_force import RuleInForce
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Fetch, Waiter


def _refill_over_what_is_leased() -> AbstractContextManager[Any]:
    refill = Bucket._refill

    def broken(self: Bucket, now: int) -> None:
        outstanding, self._table.outstanding = self._table.outstanding, 0
        refill(self, now)
        self._table.outstanding = outstanding

    return patch.object(Bucket, "_refill", broken)


def _credit_copies() -> AbstractContextManager[Any]:
    give_back = Bucket.give_back

    carried_out = set()

    def broken(self: Bucket, back: GiveBack, now: int) -> int:
        credited = give_back(self, back, now)
        if (back.instance, back.seq) in carried_out:
            rooms = [band.burst - self._table.outstanding - level for band, level in self._each()]
            self._levels = [level + min(back.tokens, room) for level, room in zip(self._levels, rooms, strict=True)]
        carried_out.add((back.instance, back.seq))
        return credited

    return patch.object(Bucket, "give_back", broken)


def _grant_repetitions_anew() -> AbstractContextManager[Any]:
    take = Bucket.take

    def broken(self: Bucket, quota: Quota, ask: Ask, now: int) -> Grant:
        if (instance := self._table.instances.get(ask.instance)) is not None:
            instance.granted, instance.seq = 0, min(instance.seq, ask.seq)
        return take(self, quota, ask, now)

    return patch.object(Bucket, "take", broken)


def _count_leases_from_the_answer() -> AbstractContextManager[Any]:
    credit = Lease.credit

    def broken(self: Lease, fetch: Fetch, grant: Grant, now: float, begins: float, quota: Quota) -> int:
        return credit(self, fetch._replace(sent=now), grant, now, begins, quota)

    return patch.object(Lease, "credit", broken)


def _begin_each_grant_from_its_ask() -> AbstractContextManager[Any]:
    def broken(self: Lease, fetch: Fetch, grant: Grant, now: float) -> float:
        return max(now, fetch.sent + grant.starts_in)

    return patch.object(Lease, "begins", broken)


def _spend_what_has_expired() -> AbstractContextManager[Any]:
    take = FreeTokens.take

    def broken(self: FreeTokens, cost: int) -> float:
        return math.inf if take(self, cost) > -math.inf else -math.inf

    return patch.object(FreeTokens, "take", broken)


def _lend_the_whole_bucket_in_reserve() -> AbstractContextManager[Any]:
    return patch.object(fair_share, "ALPHA", 1.0)


def _forget_the_first_in_line() -> AbstractContextManager[Any]:
    return patch.object(WaitQueue, "wake_leader", lambda self: None)


def _serve_the_last_first() -> AbstractContextManager[Any]:
    def broken(self: WaitQueue) -> Waiter | None:
        return self.waiters[max(self.waiters)] if self.waiters else None

    return patch.object(WaitQueue, "first", property(broken))


def _give_nothing_to_who_is_not_alone() -> AbstractContextManager[Any]:
    offer, later = Bucket._offer, Bucket._later

    def broken(self: Bucket, instance: InstanceEntry, ask: Ask) -> tuple[int, int, int, float]:
        granted, wait, told, accrued = offer(self, instance, ask)
        return (granted if self._table.active == 1 else 0), wait, told, accrued

    def broken_too(self: Bucket, instance: InstanceEntry, ask: Ask, ahead: int) -> int:
        return later(self, instance, ask, ahead) if self._table.active == 1 else 0

    return patch.multiple(Bucket, _offer=broken, _later=broken_too)


def _lose_count_of_service() -> AbstractContextManager[Any]:
    def broken(self: InstanceTable, instance: InstanceEntry, at: int) -> None:
        instance.last = at

    return patch.object(InstanceTable, "serve", broken)


def _obey_who_asks_last() -> AbstractContextManager[Any]:
    agree = Bucket._agree

    def broken(self: Bucket, quota: Quota, ask: Ask, instance: InstanceEntry) -> None:
        agree(self, quota, ask._replace(rules=0, age=0.0), instance)
        self._rank = ask.rules, 0

    return patch.object(Bucket, "_agree", broken)


def _hear_nothing() -> AbstractContextManager[Any]:
    return patch.object(OverridesCache, "hear", lambda self, told, now: None)


def _keep_the_first_override() -> AbstractContextManager[Any]:
    reconsider = RuleInForce.reconsider

    def broken(self: RuleInForce, now: float) -> None:
        if not self._state.edition:
            reconsider(self, now)

    return patch.object(RuleInForce, "reconsider", broken)


def _let_no_override_end() -> AbstractContextManager[Any]:
    return patch.object(OverridesCache, "expire", lambda self: False)


def _begin_full_with_each_quota() -> AbstractContextManager[Any]:
    reconfigure = Bucket._reconfigure

    def broken(self: Bucket, quota: Quota) -> None:
        reconfigure(self, quota)
        self._levels = [max(0, band.burst - self._table.outstanding) for band in self._bands]

    return patch.object(Bucket, "_reconfigure", broken)


def _let_freedom_go_on() -> AbstractContextManager[Any]:
    return patch.object(Lease, "disown", lambda self: None)


def _refuse_in_shadow_mode() -> AbstractContextManager[Any]:
    return patch.object(KeyState, "pass_in_shadow", lambda self, waiter: None)


def _fill_over_what_is_leased() -> AbstractContextManager[Any]:
    reset = Bucket.reset

    def broken(self: Bucket, now: int, *, forget: bool) -> tuple[float, ...]:
        before = reset(self, now, forget=forget)
        self._levels = [float(band.burst) for band in self._bands]
        return before

    return patch.object(Bucket, "reset", broken)


def _ignore_revisions() -> AbstractContextManager[Any]:
    agree = Bucket._agree

    def broken(self: Bucket, quota: Quota, ask: Ask, instance: InstanceEntry) -> None:
        agree(self, quota, ask._replace(revision=0), instance)

    return patch.object(Bucket, "_agree", broken)


def _keep_the_first_file() -> AbstractContextManager[Any]:
    return patch.object(RuleInForce, "recode", lambda self, code, policy, rank, now: None)


def _charge_half() -> AbstractContextManager[Any]:
    charge = SpendableBucket.charge

    def broken(self: SpendableBucket, spend: Spend, now: int) -> Spent:
        return charge(self, spend._replace(cost=spend.cost // 2), now)

    return patch.object(SpendableBucket, "charge", broken)


def _spend_what_is_leased() -> AbstractContextManager[Any]:
    return patch.object(SpendableBucket, "_is_leased", False)


BREAKS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "outstanding": _refill_over_what_is_leased,
    "copies": _credit_copies,
    "repetitions": _grant_repetitions_anew,
    "sent": _count_leases_from_the_answer,
    "begins": _begin_each_grant_from_its_ask,
    "expiry": _spend_what_has_expired,
    "reserve": _lend_the_whole_bucket_in_reserve,
    "waking": _forget_the_first_in_line,
    "order": _serve_the_last_first,
    "sharing": _give_nothing_to_who_is_not_alone,
    "service": _lose_count_of_service,
    "rank": _obey_who_asks_last,
    "hearing": _hear_nothing,
    "overrides": _keep_the_first_override,
    "ends": _let_no_override_end,
    "shares": _begin_full_with_each_quota,
    "freedom": _let_freedom_go_on,
    "shadow": _refuse_in_shadow_mode,
    "fill": _fill_over_what_is_leased,
    "revisions": _ignore_revisions,
    "files": _keep_the_first_file,
    "spends": _spend_what_is_leased,
    "charges": _charge_half,
}
