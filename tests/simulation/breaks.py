"""Rules that can be broken on purpose, to see that the simulation notices."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

from batchlimit.bucket import fair_share
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend, Spent
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable, SpendableBucket
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.rule_in_force import RuleInForce
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Fetch, Waiter

Break = Callable[[], AbstractContextManager[Any]]


def instead(place: type, name: str, broken: Callable[..., Any]) -> Break:
    """Have a method be another one, which gets the true one first."""
    true = getattr(place, name)
    return lambda: patch.object(place, name, lambda *args, **options: broken(true, *args, **options))


def set_to(place: object, name: str, value: object) -> Break:
    """Have a name be something else."""
    return partial(patch.object, place, name, value)


def _refill_over_what_is_leased(refill: Any, self: Bucket, now: int) -> None:
    outstanding, self._table.outstanding = self._table.outstanding, 0
    refill(self, now)
    self._table.outstanding = outstanding


def _credit_copies() -> AbstractContextManager[Any]:
    give_back, carried_out = Bucket.give_back, set()

    def broken(self: Bucket, back: GiveBack, now: int) -> int:
        credited = give_back(self, back, now)
        if (back.instance, back.seq) in carried_out:
            rooms = [band.burst - self._table.outstanding - level for band, level in self._each()]
            self._levels = [level + min(back.tokens, room) for level, room in zip(self._levels, rooms, strict=True)]
        carried_out.add((back.instance, back.seq))
        return credited

    return patch.object(Bucket, "give_back", broken)


def _grant_repetitions_anew(take: Any, self: Bucket, quota: Quota, ask: Ask, now: int) -> Any:
    if (instance := self._table.instances.get(ask.instance)) is not None:
        instance.granted, instance.seq = 0, min(instance.seq, ask.seq)
    return take(self, quota, ask, now)


def _count_leases_from_the_answer(credit: Any, self: Lease, fetch: Fetch, grant: Grant, now: float, *rest: Any) -> Any:
    return credit(self, fetch._replace(sent=now), grant, now, *rest)


def _begin_each_grant_from_its_ask(_true: Any, self: Lease, fetch: Fetch, grant: Grant, now: float) -> float:
    return max(now, fetch.sent + grant.starts_in)


def _spend_what_has_expired(take: Any, self: FreeTokens, cost: int) -> float:
    return math.inf if take(self, cost) > -math.inf else -math.inf


def _serve_the_last_first(self: WaitQueue) -> Waiter | None:
    return self.waiters[max(self.waiters)] if self.waiters else None


def _give_nothing_to_who_is_not_alone() -> AbstractContextManager[Any]:
    offer, later = Bucket._offer, Bucket._later

    def broken(self: Bucket, instance: InstanceEntry, ask: Ask) -> tuple[int, int, int, float]:
        granted, wait, told, accrued = offer(self, instance, ask)
        return (granted if self._table.active == 1 else 0), wait, told, accrued

    def broken_too(self: Bucket, instance: InstanceEntry, ask: Ask, wait: int, overweight: int) -> tuple[int, int]:
        return later(self, instance, ask, wait, overweight) if self._table.active == 1 else (0, 0)

    return patch.multiple(Bucket, _offer=broken, _later=broken_too)


def _lose_count_of_service(_true: Any, self: InstanceTable, instance: InstanceEntry, at: int) -> None:
    instance.last = at


def _obey_who_asks_last(agree: Any, self: Bucket, quota: Quota, ask: Ask, instance: InstanceEntry) -> None:
    agree(self, quota, ask._replace(rules=0, age=0.0), instance)
    self._rank = ask.rules, 0


def _keep_the_first_override(reconsider: Any, self: RuleInForce, now: float) -> None:
    if not self._state.edition:
        reconsider(self, now)


def _begin_full_with_each_quota(reconfigure: Any, self: Bucket, quota: Quota) -> None:
    reconfigure(self, quota)
    self._levels = [max(0, band.burst - self._table.outstanding) for band in self._bands]


def _fill_over_what_is_leased(reset: Any, self: Bucket, now: int, *, forget: bool) -> Any:
    before = reset(self, now, forget=forget)
    self._levels = [float(band.burst) for band in self._bands]
    return before


def _ignore_revisions(agree: Any, self: Bucket, quota: Quota, ask: Ask, instance: InstanceEntry) -> None:
    agree(self, quota, ask._replace(revision=0), instance)


def _charge_half(charge: Any, self: SpendableBucket, spend: Spend, now: int) -> Spent:
    return charge(self, spend._replace(cost=spend.cost // 2), now)  # type: ignore[no-any-return]


BREAKS: dict[str, Break] = {
    "outstanding": instead(Bucket, "_refill", _refill_over_what_is_leased),
    "copies": _credit_copies,
    "repetitions": instead(Bucket, "take", _grant_repetitions_anew),
    "sent": instead(Lease, "credit", _count_leases_from_the_answer),
    "begins": instead(Lease, "begins", _begin_each_grant_from_its_ask),
    "expiry": instead(FreeTokens, "take", _spend_what_has_expired),
    "reserve": set_to(fair_share, "ALPHA", 0.999),
    "waking": set_to(WaitQueue, "wake_leader", lambda self: None),
    "order": set_to(WaitQueue, "first", property(_serve_the_last_first)),
    "sharing": _give_nothing_to_who_is_not_alone,
    "service": instead(InstanceTable, "serve", _lose_count_of_service),
    "rank": instead(Bucket, "_agree", _obey_who_asks_last),
    "hearing": set_to(OverridesCache, "hear", lambda self, told, now: None),
    "overrides": instead(RuleInForce, "reconsider", _keep_the_first_override),
    "ends": set_to(OverridesCache, "expire", lambda self: False),
    "shares": instead(Bucket, "_reconfigure", _begin_full_with_each_quota),
    "freedom": set_to(Lease, "disown", lambda self: None),
    "shadow": set_to(KeyState, "pass_in_shadow", lambda self, waiter: None),
    "fill": instead(Bucket, "reset", _fill_over_what_is_leased),
    "revisions": instead(Bucket, "_agree", _ignore_revisions),
    "files": set_to(RuleInForce, "recode", lambda self, code, policy, rank, now: None),
    "spends": set_to(SpendableBucket, "_is_leased", False),
    "charges": instead(SpendableBucket, "charge", _charge_half),
}
