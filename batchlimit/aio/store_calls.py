"""The requests of a key entry to the store: sent in this turn of the loop or by a task, and reported in any case."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from batchlimit.aio.home import Home
from batchlimit.aio.waiting_task import NO_GATE, RefillGate
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.events import named, tell
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.redaction import shown
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import NOBODY, Fail, Fetch, Waiter
from batchlimit.stores.outage import addressed, unavailable
from batchlimit.stores.timeouts import MANY
from batchlimit.waiting import NO_WAIT

P = ParamSpec("P")
T = TypeVar("T")
_CANCELLED = BucketUnavailable("the request was cancelled")


class Entry(Protocol):
    """The key entry that asks."""

    key: str
    reservoir: Reservoir
    home: Home
    refill_gate: RefillGate

    def granted(self, fetch: Fetch, grant: Grant) -> None:
        """Take in what the store granted."""
        ...

    def changed(self) -> None:
        """Wake the waiters concerned by a change."""
        ...


def fetch(entry: Entry, request: Fetch) -> None:
    """Ask the store, in this turn of the loop if it can be."""
    hear = partial(heard, entry, request)
    try:
        under_way = entry.home.store.send(entry.key, request.quota, request.ask, hear)
    except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
        entry.reservoir.failed(request, uncounted(error), entry.home.clock())
    except BaseException:
        entry.reservoir.failed(request, None, entry.home.clock())
        raise
    else:
        if under_way is None:
            fetch_by_task(entry, request)
        else:
            entry.home.follow(under_way)
            entry.refill_gate.shut()


def fetch_by_task(entry: Entry, request: Fetch) -> "asyncio.Future[Any] | None":
    """Ask the store by a task; return that, or None if there is none and the request has failed."""
    try:
        task = entry.home.start(outcome(entry.home.store.take, entry.key, request.quota, request.ask))
    except Exception as error:  # noqa: BLE001  a task factory of the user's own
        _report(entry, request, uncounted(error))
        return None
    except BaseException:
        entry.reservoir.failed(request, None, entry.home.clock())
        raise
    task.add_done_callback(partial(_taken, entry, request))
    entry.refill_gate.shut()
    return task


def give_back(entry: Entry, back: GiveBack) -> "asyncio.Task[int | StoreUnavailable]":
    """Return tokens, once; those that the store does not take expire there."""
    task = entry.home.start(outcome(entry.home.store.give_back, entry.key, entry.reservoir.quota, back))
    task.add_done_callback(partial(_gave, entry, back))
    return task


def refund(entry: Entry, cost: int) -> "asyncio.Task[int | StoreUnavailable] | None":
    """Take back tokens that were admitted and not used; return the task by which they travel, if they do."""
    back = entry.reservoir.corrections.refund(Waiter(cost, NO_WAIT, NOBODY), entry.home.clock())
    task: asyncio.Task[Any] | None = None if back is None else give_back(entry, back)
    if task is not None and not entry.reservoir.state.fallback.fails_closed:
        task = entry.home.start(_silenced(task))
    entry.changed()
    return task


async def outcome(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | StoreUnavailable:
    """Return what a store says, or what is wrong with it: the event loop would complain of a task that fails."""
    try:
        return await call(*args, **kwargs)
    except StoreUnavailable as error:
        return error
    except Exception as error:  # noqa: BLE001  callers know StoreUnavailable alone, whatever a user's own store raises
        return unavailable(error)


async def arrived(key: str, task: "asyncio.Task[int | StoreUnavailable] | None") -> None:
    """Wait until a GiveBack has ended, and raise if the store is away. A caller that is cancelled does not stop it.

    Tokens that were not even sent go later.
    """
    result = None if task is None else await asyncio.shield(task)
    if isinstance(result, StoreUnavailable) and not isinstance(result, CircuitOpen):
        raise Fail(result).to_raise(key)


async def _silenced(task: "asyncio.Task[int | StoreUnavailable]") -> int:
    """Return how many tokens arrived; 0 if the store is away, which no caller is told."""
    return result if isinstance(result := await task, int) else 0


def _taken(entry: Entry, request: Fetch, task: "asyncio.Task[Grant | StoreUnavailable]") -> None:
    """Report after the task, which may be cancelled before it begins."""
    _report(entry, request, _CANCELLED if task.cancelled() or task.exception() else task.result())


def heard(entry: Entry, request: Fetch, outcome: Grant | StoreUnavailable | None) -> None:
    """Report what became of a request; None: it is to be sent by a task."""
    if outcome is None:
        fetch_by_task(entry, request)
    else:
        _report(entry, request, outcome)


def _report(entry: Entry, request: Fetch, outcome: object) -> None:
    entry.refill_gate.open()  # first: the next request may leave before this has ended, and shuts it again
    if isinstance(outcome, Grant):
        if entry.refill_gate is NO_GATE and outcome.granted >= MANY:
            entry.refill_gate = RefillGate(entry.home.store.brief)
        entry.refill_gate.learn(outcome.granted, entry.home.clock() - request.sent)
        entry.granted(request, outcome)
    else:
        entry.refill_gate.learn(0, 0.0)  # callers in the queue get the next failure at once
        entry.reservoir.failed(request, _failure(entry, request, outcome), entry.home.clock())
    entry.changed()


def _failure(entry: Entry, request: Fetch, outcome: object) -> Exception | None:
    """Return what callers get; None: the request was cancelled, which is not the store's fault, so ask again."""
    if outcome is _CANCELLED and not request.repeated:
        return None
    if isinstance(outcome, StoreUnavailable):
        return outcome
    return addressed(uncounted(TypeError(f"an answer that is no Grant: {shown(outcome)}")), entry.home.store.address)


def _gave(entry: Entry, back: GiveBack, task: "asyncio.Task[int | StoreUnavailable]") -> None:
    error = None if task.cancelled() or task.exception() else task.result()
    if isinstance(error, StoreUnavailable):
        message = "tokens of %s were not given back; they will expire: %s"
        tell("tokens.not_returned", message, named(entry.key), error, key=entry.key, reason=str(error))
    entry.reservoir.gave_back(entry.home.clock(), back if isinstance(error, CircuitOpen) else None)
    entry.changed()


def uncounted(error: Exception) -> BucketUnavailable:
    """Return an error that ends the wait of all callers: the circuit breaker does not count it, so never opens."""
    found = BucketUnavailable(*unavailable(error).args)
    found.__cause__ = error
    return found
