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
        "aio.decide_all:spend_cold",
        "            _give_back(taken, registry.clock())",
        "            pass",
        "one key leased, one spent",
    ),
    Break(
        "an interrupted spend keeps the tokens of the leased key",
        "aio.decide_all:spend_cold",
        "if told is None or not all(told.values()):",
        "if told is not None and not all(told.values()):",
        "one key leased, one spent, interrupted",
    ),
    Break(
        "tokens that come back are counted as admitted",
        "aio.decide_all:_give_back",
        "entry.tokens.took_late(cost)  #",
        "pass  #",
        "one key leased, one spent",
    ),
    Break(
        "what comes back comes twice",
        "aio.decide_all:_give_back",
        "store_calls.refund(entry, cost)",
        "store_calls.refund(entry, 2 * cost)",
        "one key leased, one spent",
    ),
    Break(
        "tokens of the first key are kept where the second is short",
        "aio.decide_all:_take",
        "_put_back(taken, now := clock())",
        "now = clock()",
        "two keys leased",
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
