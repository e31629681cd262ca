"""No permit is ever lost or doubled, whatever happens when: both APIs against a model that a page holds."""

import itertools
import warnings
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batchlimit import Partitions, Queue
from tests.apis.callers import Caller, Callers, Tasks, Threads
from tests.depth import depth

SHARES = {"live": 0.5, "batch": 0.25}
NAMES = st.sampled_from([*SHARES, "other"])
MAX_WAIT = 3.0


class Model:
    """What should be: who is under way and who waits, as plain lists that are searched from end to end."""

    def __init__(self, limit: int, shares: dict[str, float], strict: bool, queue: Queue) -> None:
        self.limit, self.shares, self.strict, self.queue = limit, shares, strict, queue
        self.now = 0.0
        self.held: dict[Caller, str] = {}
        self.waiting: dict[Caller, tuple[str, float]] = {}
        self.over: dict[Caller, str] = {}
        self.claimed: set[str] = set()

    def call(self, caller: Caller, name: str, timeout: float | None) -> None:
        self.claimed.add(name)
        wait = min(MAX_WAIT, MAX_WAIT if timeout is None else timeout) if self.queue.length else 0.0
        if self.may_enter(name):
            self.held[caller] = name
        elif wait == 0:
            self.over[caller] = "partition" if len(self.held) < self.limit else "limit"
        elif len(self.waiting) < self.queue.length:
            self.waiting[caller] = name, self.now + wait
        else:
            self.over[caller] = "queue_full"

    def finish(self, caller: Caller) -> None:
        del self.held[caller]
        self.serve()

    def resize(self, limit: int) -> None:
        self.limit = limit
        self.serve()

    def cancel(self, caller: Caller, how: str) -> None:
        self.over[caller] = how
        self.waiting.pop(caller, None)
        if self.held.pop(caller, None) is not None:
            self.serve()

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for caller in [each for each, (_, until) in self.waiting.items() if until <= self.now]:
            del self.waiting[caller]
            self.over[caller] = "queue_timeout"

    def serve(self) -> None:
        order = list(self.waiting) if self.queue.order == "fifo" else list(self.waiting)[::-1]
        order.sort(key=lambda each: self.busy(self.waiting[each][0]) >= self.guaranteed(self.waiting[each][0]))
        for caller in order:
            if self.may_enter(self.waiting[caller][0]):
                self.held[caller] = self.waiting.pop(caller)[0]
                self.serve()
                return

    def state(self, caller: Caller) -> str:
        if caller in self.held:
            return "held"
        return "waiting" if caller in self.waiting else self.over.get(caller, "done")

    def may_enter(self, name: str) -> bool:
        if not self.strict:
            return len(self.held) < self.limit or self.busy(name) < self.guaranteed(name)
        room = self.limit - len(self.held)
        kept = sum(max(0, self.guaranteed(each) - self.busy(each)) for each in self.claimed)
        return room > 0 if self.busy(name) < self.guaranteed(name) else room > kept

    def busy(self, name: str) -> int:
        return sum(self.group(each) == self.group(name) for each in self.held.values())

    def group(self, name: str) -> str:
        return name if name in self.shares else ""

    def guaranteed(self, name: str) -> int:
        percent = round(100 * self.shares.get(name, 0))
        return self.limit * percent // 100 if self.strict else -(-self.limit * percent // 100)


class Permits(RuleBasedStateMachine):
    """Either API does what the model does."""

    api: type[Tasks] | type[Threads]
    callers: Callers

    @initialize(
        limit=st.integers(1, 5),
        shares=st.booleans(),
        strict=st.booleans(),
        length=st.sampled_from([0, 1, 6]),
        order=st.sampled_from(["fifo", "lifo"]),
    )
    def begin(self, limit: int, shares: bool, strict: bool, length: int, order: str) -> None:
        queue = Queue(length, MAX_WAIT, order)  # type: ignore[arg-type]
        # In the strict world of the model time stands still, and so no waiter of a share ends.
        self.model = Model(limit, SHARES if shares else {}, strict and shares, queue)
        self.callers = self.api(limit, Partitions(SHARES, strict=strict) if shares else None, queue)
        self.all: list[Caller] = []

    @rule(name=NAMES, timeout=st.sampled_from([None, 0, 1.0, 2.0, 9.0]))
    def call(self, name: str, timeout: float | None) -> None:
        caller = self.callers.call(name, timeout)
        self.callers.settle()
        self.model.call(caller, name, timeout)
        self.all.append(caller)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), how=st.sampled_from(["success", "drop", "ignore"]), times=st.integers(1, 2))
    def finish(self, data: st.DataObject, how: str, times: int) -> None:
        caller = self.one(data, self.model.held)
        for _ in range(times):
            getattr(caller.permit, how)()
        self.callers.settle()
        self.end(caller)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """A permit that is collected is released, and warned about."""
        caller = self.one(data, self.model.held)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            caller.permit = None
        assert [each.category for each in caught] == [ResourceWarning]
        self.callers.settle()
        self.end(caller)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        caller = self.one(data, self.model.waiting)
        self.callers.cancel(caller)
        self.callers.settle()
        self.model.cancel(caller, self.interruption)

    @precondition(lambda self: self.model.held and self.model.waiting)
    @rule(data=st.data())
    def finish_and_cancel(self, data: st.DataObject) -> None:
        """The place comes, and so does the cancellation, before the waiter has run."""
        holder, waiter = self.one(data, self.model.held), self.one(data, self.model.waiting)
        self.callers.hold()
        holder.permit.success()
        self.callers.cancel(waiter)
        self.callers.settle()
        self.end(holder)
        self.model.cancel(waiter, self.interruption)

    @precondition(lambda self: self.model.held and self.model.waiting and not self.model.strict)
    @rule(data=st.data(), seconds=st.sampled_from([1.0, 3.0]))
    def finish_and_time_out(self, data: st.DataObject, seconds: float) -> None:
        """The place comes, and time runs out, before the waiter has run: it keeps the place."""
        holder = self.one(data, self.model.held)
        self.callers.hold()
        holder.permit.drop()
        self.callers.pass_by(seconds)
        self.callers.settle()
        self.end(holder)
        self.model.pass_by(seconds)

    @precondition(lambda self: not self.model.strict)
    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def pass_by(self, seconds: float) -> None:
        self.callers.hold()
        self.callers.pass_by(seconds)
        self.callers.settle()
        self.model.pass_by(seconds)

    @rule(limit=st.integers(1, 8))
    def resize(self, limit: int) -> None:
        self.callers.law.set_limit(limit)
        self.callers.settle()
        self.model.resize(limit)

    @invariant()
    def everybody_is_where_they_should_be(self) -> None:
        if not hasattr(self, "model"):
            return
        model, seen = self.model, self.callers.limiter.statistics()
        for caller in self.all:
            assert caller.state == model.state(caller)
        assert (seen.limit, seen.in_flight, seen.waiting) == (model.limit, len(model.held), len(model.waiting))
        assert {name: each.in_flight for name, each in seen.partitions.items()} == {
            name: model.busy(name) for name in (*model.shares, "")
        }

    def one(self, data: st.DataObject, among: Iterable[Caller]) -> Caller:
        return data.draw(st.sampled_from(sorted(among, key=self.all.index)))

    def end(self, caller: Caller) -> None:
        caller.state, caller.permit = "done", None
        self.model.finish(caller)

    @property
    def interruption(self) -> str:
        return "CancelledError" if self.api is Tasks else "Interrupted"

    def teardown(self) -> None:
        if not hasattr(self, "callers"):
            return
        for caller in itertools.chain(self.model.held, self.model.waiting):
            if caller.permit is not None:
                caller.permit.success()
        self.callers.shut()
        self.callers.settle()
        for caller in self.all:
            if caller.permit is not None:
                caller.permit.success()
        assert self.callers.limiter.statistics().in_flight == 0
        self.callers.close()


@pytest.mark.parametrize("api", [Threads, Tasks], ids=["threads", "asyncio"])
def test_no_permit_is_lost_or_doubled(api: type[Tasks] | type[Threads]) -> None:
    class Machine(Permits):
        pass

    Machine.api = api
    examples = depth(20, 60) if api is Threads else depth(50, 200)
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None))
