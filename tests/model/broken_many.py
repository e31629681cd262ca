"""Rules of calls at several keys, broken on purpose: all keys are charged, or none."""

from tests.model.break_of import Break

SEVERAL = [
    Break(
        "a call that is refused keeps the tokens of its other keys",
        "aio.acquire_all:AsyncAcquireAll._try",
        "            self._leave()",
        "            self._held = []",
        "two keys by slot",
    ),
    Break(
        "what several keys were charged is not confirmed",
        "keyspace.several:SeveralKeys._confirm",
        "caller.confirm()",
        "pass",
        "two keys by slot",
    ),
    Break(
        "a token counted as spent is gone where another caller asks before it is left",
        "reservoir.lease:Lease.credit",
        "is_spent = self.may_count_as_spent and",
        "is_spent = False and",
        "two keys by slot, three calls",
    ),
    Break(
        "a token counted as spent is gone with who leaves it",
        "reservoir.corrections:Corrections.undo",
        "self._requests.refunds += waiter.cost",
        "pass",
        "two keys by slot, three calls",
    ),
    Break(
        "a refused spend keeps the tokens of the leased key",
        "keyspace.from_memory:FromMemory.settle",
        "            self._put_back(charged.found, charged.ends)\n            return told",
        "            return told",
        "one key leased, one spent",
    ),
    Break(
        "an interrupted spend keeps the tokens of the leased key",
        "aio.slow_path:AsyncSlowPath.spend_cold",
        "settled = registry",
        "settled = told and registry",
        "one key leased, one spent, interrupted",
    ),
    Break(
        "tokens that come back are counted as admitted",
        "keyspace.from_memory:FromMemory._put_back",
        "entry.took_late(cost)",
        "pass",
        "one key leased, one spent",
    ),
    Break(
        "what comes back comes twice",
        "keyspace.from_memory:FromMemory._put_back",
        "self._refund(entry, cost)",
        "self._refund(entry, 2 * cost)",
        "one key leased, one spent",
    ),
    Break(
        "what was spent for an interrupted caller is kept",
        "aio.spends:Spends._undo",
        "if is_charged(outcome):",
        "if False:",
        "two keys, spent, interrupted",
    ),
    Break(
        "a group is charged if one of its buckets has the tokens",
        "stores.memory:MemoryStore._spent",
        "if not all(each.is_charged for each in told):",
        "if not any(each.is_charged for each in told):",
        "two keys, spent",
    ),
    Break(
        "one bucket of a group is charged",
        "stores.memory:MemoryStore._spent",
        "zip(buckets, group, strict=True)])\n        for",
        "zip(buckets[:1], group[:1], strict=True)])\n        for",
        "two keys, spent, interrupted",
    ),
]
