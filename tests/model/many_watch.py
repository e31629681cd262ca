"""What must be true of every history of calls at several keys."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, Grant, Spend, Spent
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.statistics import Health
from tests.model.limiter import SECOND
from tests.model.watch import _ROUNDING, _tolerance, latest_spend
from tests.simulation.watch import Reference, Violation, wrong_sum


class Holder(Protocol):
    """An instance."""

    name: str
    limiter: Any

    def held(self, key: str, now: float) -> int:
        """Tokens that callers could be admitted by."""
        ...


class Account:
    """One bucket: what the promise leaves, what was taken of it, and what callers were admitted for."""

    __slots__ = ("admitted", "exact", "lapsed", "lasting", "reference", "spent")

    def __init__(self, quota: Quota, patience: float, now: int) -> None:
        self.reference = Reference(quota.rate, quota.burst, now)
        self.lasting = latest_spend(quota, patience)
        self.spent: list[tuple[str, int, int]] = []  # whose tokens the bucket counts as spent, how many, until when
        self.admitted = self.lapsed = self.exact = 0


class ManyWatch:
    """Hears what happens, and looks at all after each step; raises Violation."""

    __slots__ = ("_accounts", "_interrupted", "_told")

    def __init__(self, quotas: Mapping[str, str], patience: float, now: int) -> None:
        self._accounts = {key: Account(Quota.parse(text), patience, now) for key, text in quotas.items()}
        self._told: dict[str, int] = {}  # by instance: tokens that its callers were admitted for
        self._interrupted = 0  # what was charged in vain, and goes back if it can: it may count as admitted

    # What happens

    def admitted(self, name: str, costs: Mapping[str, int], now: int) -> None:
        self._told[name] = self._told.get(name, 0) + sum(costs.values())
        for key, cost in costs.items():
            account = self._accounts[key]
            account.admitted += cost
            account.reference.advance(now)
            account.reference.level -= cost
            if account.reference.level < -_tolerance(account.reference):
                raise Violation(f"{-account.reference.level:g} of {key} more than burst + rate x T were admitted")

    def in_vain(self, tokens: int) -> None:
        """Nobody is admitted by these: a caller was interrupted, or an answer came too late."""
        self._interrupted += tokens

    def asked(self, name: str, key: str, ask: Ask, grant: Grant, bucket: Bucket, now: int) -> None:
        """A bucket has carried out an ask: what is spent when it is granted makes room at once, see Watch."""
        entry, account = bucket._table.instances.get(name), self._accounts[key]
        if entry is None or entry.seq != ask.seq or entry.starts < bucket._now:
            return
        if entry.held < entry.granted == grant.granted:
            lasting = entry.expires - bucket._now
            account.exact += entry.granted
            account.spent.append((name, entry.granted, now + lasting))
            account.reference.allow(0, entry.granted, now, lasting)

    def spent(
        self, group: Sequence[Spend], told: tuple[Spent, ...] | None, buckets: Mapping[str, Bucket], now: int
    ) -> None:
        """A group of spends was carried out: all of it, or nothing."""
        if told is None:
            return
        charged = {each.is_charged for each in told}
        if all(charged):
            for each in group:
                account = self._accounts[each.key]
                account.reference.allow(0, each.cost, now, account.lasting)
        elif all(each.key in buckets and min(buckets[each.key]._levels) >= each.cost for each in group):
            raise Violation(f"the buckets refuse {[each.cost for each in group]}, and have that")

    def passes(self, processes: Sequence[Holder], before: int, now: int) -> None:
        """Time goes by in one step: tokens are refilled, and leases end with what is left of them."""
        for key, account in self._accounts.items():
            held = [each.held(key, before / SECOND) for each in processes if not each.held(key, now / SECOND)]
            account.lapsed += sum(held)
            account.reference.advance(now)
            account.spent = [each for each in account.spent if now < each[2]]

    # What must be true at every moment

    def look(self, processes: Sequence[Holder], buckets: Mapping[str, Bucket], now: int, *, is_quiet: bool) -> None:
        for process in processes:
            self._check_counts(process, is_quiet=is_quiet)
        for key, bucket in buckets.items():
            if wrong := wrong_sum(bucket):
                raise Violation(wrong)
            self._check_held(key, bucket, processes, now)

    def _check_counts(self, process: Holder, *, is_quiet: bool) -> None:
        """Nobody is counted as admitted who was not, or at one key alone."""
        counted, told = _admitted(process), self._told.get(process.name, 0)
        if counted < told or (is_quiet and counted > told + self._interrupted):
            raise Violation(f"{process.name} counts {counted} as admitted, and its callers {told}")

    def _check_held(self, key: str, bucket: Bucket, processes: Sequence[Holder], now: int) -> None:
        """Each instance has no more than the bucket counts as its, and all of them no more than the promise leaves."""
        account, held = self._accounts[key], 0
        for process in processes:
            has = process.held(key, (now + _ROUNDING) / SECOND)
            entry = bucket._table.instances.get(process.name)
            is_over = entry is None or entry.expires <= max(bucket._now, now - bucket._epoch)
            counted = 0 if is_over or entry is None else entry.held
            counted += sum(tokens for name, tokens, _ in account.spent if name == process.name)
            if has > counted:
                raise Violation(f"{process.name} holds {has} of {key}, of which the bucket counts {counted}")
            held += has
        level, left = min(bucket._levels), account.reference.level
        if level + held > left + _tolerance(account.reference):
            raise Violation(f"{level:g} of {key} in the bucket and {held} at instances are more than the {left:g} left")

    def check_end(self, processes: Sequence[Holder], buckets: Mapping[str, Bucket], now: int) -> None:
        """Where nothing went wrong, nothing was charged but what callers were admitted for, or what lapsed.

        A bucket may count as spent what it grants for one caller: if that one is interrupted, the tokens are lost.
        """
        for key, bucket in buckets.items():
            held = sum(process.held(key, now / SECOND) for process in processes)
            account, used = self._accounts[key], bucket._used
            if not held and not account.admitted <= used <= account.admitted + account.lapsed + min(
                account.exact, self._interrupted
            ):
                raise Violation(f"{used} of {key} were charged, {account.admitted} admitted, {account.lapsed} lapsed")


def _admitted(process: Holder) -> int:
    """Tokens that it counts as admitted."""
    census = process.limiter._registry._keyspace.census()
    census.take(lambda: None)
    return Keyspace.statistics(census, Health()).admitted
