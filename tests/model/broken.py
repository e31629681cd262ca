"""Rules broken on purpose, one at a time: the exploration of one shape finds each.

A break is a place in the library, and what stands there instead. The function is compiled anew with that and lends its
code, so that whoever calls it calls the broken one.
"""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Break(NamedTuple):
    """`rule` is what does not hold any more; `shape` is where that is found."""

    rule: str
    where: str
    """Module within batchlimit, and qualified name of a function."""
    old: str
    new: str
    shape: str
    is_quick: bool = True

    @contextmanager
    def made(self) -> Iterator[None]:
        """Break the rule."""
        module = importlib.import_module(f"batchlimit.{self.where.split(':')[0]}")
        function = function_of(module, self.where.split(":")[1])
        lines, first = inspect.getsourcelines(function)
        source, part = inspect.getsource(module), "".join(lines)
        if part.count(self.old) != 1:
            raise LookupError(f"{self.where} has {part.count(self.old)} times {self.old}")
        before = "".join(source.splitlines(keepends=True)[: first - 1])
        source = before + part.replace(self.old, self.new) + source.removeprefix(before + part)
        code = code_of(compile(source, module.__file__ or "", "exec"), self.where.split(":")[1])
        whole, function.__code__ = function.__code__, code
        try:
            yield
        finally:
            function.__code__ = whole


def function_of(module: Any, name: str) -> FunctionType:
    """Return the function of a qualified name: a method, or what stands behind a property or a class method."""
    *classes, last = name.split(".")
    owner = module
    for each in classes:
        owner = getattr(owner, each)
    found = inspect.getattr_static(owner, last)
    found = found.fget if isinstance(found, property) else found
    found = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    assert isinstance(found, FunctionType)
    return found


def code_of(module: CodeType, name: str) -> CodeType:
    """Return the code of a function within that of its module."""
    code = module
    for part in name.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return code


BREAKS = {
    each.rule: each
    for each in [
        Break(
            "what comes back is credited as often as it comes",
            "bucket.bucket:Bucket.give_back",
            "if instance and back.seq <= instance.seq:",
            "if False:",
            "refunded, a message is lost",
        ),
        Break(
            "a copy of a give-back is credited",
            "bucket.bucket:Bucket.give_back",
            "back.seq <= instance.seq",
            "back.seq < instance.seq",
            "refunded, a message is lost",
        ),
        Break(
            "a lease that ends fills the bucket at once",
            "bucket.bucket:Bucket._refill_to",
            "self._table.settle(instance, 0)",
            "self._table.settle(instance, 0); self._levels = [level + instance.granted for level in self._levels]",
            "stopped",
        ),
        Break(
            "what comes back fills over what is leased",
            "bucket.bucket:Bucket._room",
            "band.burst - self._table.outstanding",
            "band.burst",
            "refunded",
        ),
        Break(
            "what comes back fills over the burst",
            "bucket.bucket:Bucket._credit",
            "level + min(tokens, room)",
            "level + tokens",
            "refunded, a message is lost",
        ),
        Break(
            "an ask leaves no number",
            "bucket.bucket:Bucket._answer",
            "instance.held, ask.seq, self._now, 0",
            "instance.held, instance.seq, self._now, 0",
            "one leases, a message is lost",
        ),
        Break(
            "more is granted than is there",
            "bucket.bucket:Bucket._offer",
            "granted = min(granted, level, fair, max(ask.queued, ahead))",
            "granted = min(granted, level + 1, fair + 1, max(ask.queued, ahead))",
            "three wait at two",
        ),
        Break(
            "a later grant begins at once",
            "bucket.bucket:Bucket._answer",
            "return self._grant(quota, instance, granted, kept, starts_in, 0)",
            "return self._grant(quota, instance, granted, kept, 0, 0)",
            "three wait at two",
        ),
        Break(
            "what is leased stays in the bucket",
            "bucket.bucket:Bucket._lend",
            "self._levels = [level - granted for level in self._levels]",
            "pass",
            "one leases",
        ),
        Break(
            "all that is granted counts as spent",
            "bucket.bucket:Bucket._lend",
            "if is_spent and starts == self._now and instance.held == 0:",
            "if True:",
            "two lease",
        ),
        Break(
            "a lease lasts longer than the bucket counts",
            "bucket.bucket:Bucket._grant",
            "lease=max(0, instance.expires - self._now - starts_in) / _SECOND",
            "lease=2 * max(0, instance.expires - self._now - starts_in) / _SECOND",
            "stopped",
        ),
        Break(
            "all of the level is set aside",
            "bucket.fair_share:division",
            "min(band.rate / weights * waited, ALPHA * level)",
            "min(band.rate / weights * waited, level)",
            "three wait at two",
        ),
        Break(
            "more is set aside than others accrued",
            "bucket.fair_share:division",
            "min(band.rate / weights * waited, ALPHA * level)",
            "level",
            "larger costs",
        ),
        Break(
            "waits are told too short",
            "bucket.fair_share:rounded",
            "return math.ceil(min(wait, LONGEST)) + 1",
            "return math.ceil(min(wait, LONGEST) * 0.9)",
            "one spends",
        ),
        Break(
            "waits are told too long",
            "bucket.fair_share:rounded",
            "return math.ceil(min(wait, LONGEST)) + 1",
            "return math.ceil(min(wait, LONGEST) * 2) + 1",
            "one spends",
        ),
        Break(
            "a spend is charged where instances lease",
            "bucket.spendable:SpendableBucket.offer",
            "if not self._is_plain(instant):",
            "if False:",
            "one spends, one leases",
        ),
        Break(
            "a spend charges nothing",
            "bucket.spendable:SpendableBucket.charge",
            "level - spend.cost for level",
            "level for level",
            "one spends",
        ),
        Break(
            "a spend is charged before its tokens are there",
            "bucket.spendable:SpendableBucket.offer",
            "told = Spent(wait <= 0,",
            "told = Spent(wait <= 600_000,",
            "one spends",
        ),
        Break(
            "a spend is refused though the tokens are there",
            "bucket.spendable:SpendableBucket.offer",
            "told = Spent(wait <= 0,",
            "told = Spent(wait < 0,",
            "one spends",
        ),
        Break(
            "a plain bucket is refilled twice",
            "bucket.spendable:SpendableBucket._flow",
            "self._refill(self._now, leased=0)",
            "self._refill(self._now, leased=0); self._time -= 100_000",
            "one spends",
        ),
        Break(
            "refill goes on over what is leased",
            "bucket.spendable:SpendableBucket._refill",
            "room = band.burst - outstanding - level",
            "room = band.burst - level",
            "two lease",
        ),
        Break(
            "an instance that left keeps its share",
            "bucket.instance_table:InstanceTable.forget",
            "if instance.weight > 0:",
            "if False:",
            "closed",
        ),
        Break(
            "service is not counted",
            "bucket.instance_table:InstanceTable.serve",
            "self.lasts, instance.last = self.lasts + instance.weight * (at - instance.last), at",
            "instance.last = at",
            "one leases",
        ),
        Break(
            "a lease counts from its answer",
            "reservoir.lease:Lease.credit",
            "self._tokens.expires = fetch.sent +",
            "self._tokens.expires = now +",
            "stopped",
        ),
        Break(
            "pending tokens begin at once",
            "reservoir.lease:Lease.advance",
            "if self.pending and now >= self.starts:",
            "if self.pending:",
            "three wait at two",
        ),
        Break(
            "free tokens are for whoever comes while others wait",
            "reservoir.lease:Lease.reserve_for",
            "if not waiters:",
            "if True:",
            "three wait at one",
        ),
        Break(
            "more is put back than was leased",
            "reservoir.lease:Lease.put_back",
            "max(0, self._recorded - self.held - self.pledged)",
            "cost",
            "refunded",
        ),
        Break(
            "an ask does not report what is held",
            "reservoir.lease:Lease.report",
            "self._recorded = 0 if self.borrowed else self.held + self.pledged",
            "self._recorded = 0",
            "one leases",
        ),
        Break(
            "who comes last is served first",
            "reservoir.wait_queue:WaitQueue.leader",
            "return leader\n            heappop",
            "return self.waiters[max(self.waiters)]\n            heappop",
            "three wait at one",
        ),
        Break(
            "nobody takes the lead after the leader",
            "reservoir.wait_queue:WaitQueue.wake_leader",
            "self.wake(leader)",
            "pass",
            "three wait at one",
        ),
        Break(
            "who is served is not woken",
            "reservoir.wait_queue:WaitQueue.dismiss",
            "self.wake(waiter)",
            "pass",
            "three wait at one",
        ),
        Break(
            "an answer counts that nobody waits for",
            "reservoir.reservoir:Reservoir.granted",
            "if state.in_flight is not fetch:",
            "if False:",
            "interrupted",
        ),
        Break(
            "a failed ask stays in flight",
            "reservoir.requests:Requests.lost",
            "self._state.in_flight = None\n        for",
            "for",
            "one leases, a message is lost",
        ),
        Break(
            "refused callers are not counted",
            "reservoir.admission:Admission._refused",
            "state.tokens.refused += waiter.cost",
            "pass",
            "one spends",
        ),
        Break(
            "loose tokens are not spent",
            "reservoir.tokens:FreeTokens.take",
            "self.free, self._singly = left, cost == 1",
            "self._singly = cost == 1",
            "one leases",
        ),
        Break(
            "spends are not counted",
            "keyspace.spending:Spending._keep",
            "self._settled(spend.code, spend.message.cost, spend.is_lost)",
            "pass",
            "one spends",
        ),
        Break(
            "a spend does not lower what is admitted",
            "keyspace.key_spend:is_charged",
            "all([spent.is_charged",
            "any([True or spent.is_charged",
            "one spends",
        ),
        Break(
            "refunds are forgotten with the instance",
            "bucket.bucket:Bucket._settle",
            "self._known = instance.known = self._now + REMEMBERED",
            "self._table.forget(back.instance, instance, self._now)",
            "refunded",
        ),
        Break(
            "leases that end stay outstanding",
            "bucket.bucket:Bucket._refill_to",
            "self._table.settle(instance, 0)",
            "pass",
            "one spends",
        ),
    ]
}
