"""The requests of key entries that no miss sends in its own turn of the loop: by a task, refunds, returned tokens."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from batchlimit.base.redaction import shown
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.waiter import NOBODY, Fail, Fetch, Waiter
from batchlimit.stores.outage import addressed, unavailable

if TYPE_CHECKING:
    from batchlimit.aio.key_entry import KeyEntry

P = ParamSpec("P")
T = TypeVar("T")
CANCELLED = BucketUnavailable("the request was cancelled")


def fetch_by_task(entry: "KeyEntry", request: Fetch) -> "asyncio.Future[Any] | None":
    """Ask the store by a task; return that, or None if there is none and the request has failed."""
    try:
        task = entry.home.start(outcome(entry.home.store.take, entry.key, request.quota, request.ask))
    except Exception as error:  # noqa: BLE001  a task factory of the user's own
        entry.report(request, uncounted(error))
        return None
    except BaseException:
        entry.reservoir.failed(request, None, entry.home.clock())
        raise
    task.add_done_callback(partial(_taken, entry, request))
    entry.refill_gate.shut()
    return task


def give_back(entry: "KeyEntry", back: GiveBack) -> "asyncio.Task[int | StoreUnavailable]":
    """Return tokens, once; those that the store does not take expire there."""
    task = entry.home.start(outcome(entry.home.store.give_back, entry.key, entry.reservoir.state.quota, back))
    task.add_done_callback(partial(_gave, entry, back))
    return task


def refund(entry: "KeyEntry", cost: int, key: str = "") -> Callable[[], Awaitable[None]]:
    """Take back tokens that were admitted and not used; return what waits until they arrived, for whom named `key`."""
    back = entry.reservoir.lifecycle.refund(Waiter(cost, NO_WAIT, NOBODY), entry.home.clock())
    task = None if back is None else give_back(entry, back)
    entry.changed()
    return partial(_arrived, entry, task, key)


def hold(entry: "KeyEntry", seconds: float) -> bool:
    """Let go of what is leased, and ask for nothing meanwhile; True, for no key entry retires between two awaits."""
    back = entry.reservoir.lifecycle.pause(seconds, entry.home.clock(), Waiter(0, NO_WAIT, NOBODY))
    if back is not None:
        give_back(entry, back)
    entry.changed()
    return True


async def outcome(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | StoreUnavailable:
    """Return what a store says, or what is wrong with it: the event loop would complain of a task that fails."""
    try:
        return await call(*args, **kwargs)
    except StoreUnavailable as error:
        return error
    except Exception as error:  # noqa: BLE001  callers know StoreUnavailable alone, whatever a user's own store raises
        return unavailable(error)


async def _arrived(entry: "KeyEntry", task: "asyncio.Task[int | StoreUnavailable] | None", key: str) -> None:
    """Wait until a GiveBack has ended, which no cancelled caller stops; raise if its key fails closed."""
    result = 0 if task is None else await asyncio.shield(task)
    if isinstance(result, StoreUnavailable) and entry.reservoir.state.fallback.fails_closed:
        error = entry.reservoir.lifecycle.ended or result  # then the error tells of our end, not of the store
        if not isinstance(error, CircuitOpen):
            raise Fail(error).to_raise(key)


def _taken(entry: "KeyEntry", request: Fetch, task: "asyncio.Task[Grant | StoreUnavailable]") -> None:
    """Report after the task, which may be cancelled before it begins."""
    entry.report(request, CANCELLED if task.cancelled() or task.exception() else task.result())


def failure(entry: "KeyEntry", request: Fetch, outcome: object) -> Exception | None:
    """Return what callers get; None: the request was cancelled, which is not the store's fault, so ask again."""
    if outcome is CANCELLED and not request.repeated:
        return None
    if isinstance(outcome, StoreUnavailable):
        return outcome
    return addressed(uncounted(TypeError(f"an answer that is no Grant: {shown(outcome)}")), entry.home.store.address)


def _gave(entry: "KeyEntry", back: GiveBack, task: "asyncio.Task[int | StoreUnavailable]") -> None:
    error = None if task.cancelled() or task.exception() else task.result()
    if isinstance(error, StoreUnavailable):
        message = "tokens of %s were not given back; they will expire: %s"
        log_event("tokens.not_returned", message, named(entry.key), error, key=entry.key, reason=str(error))
    unsent = back if isinstance(error, CircuitOpen) else None
    entry.reservoir.gave_back(entry.home.clock(), unsent, back)
    entry.changed()


def uncounted(error: Exception) -> StoreUnavailable:
    """Return an error that ends the wait of all callers: the circuit breaker does not count it, so never opens."""
    return unavailable(error, BucketUnavailable)
