"""Both APIs have one face: who knows one of them knows the other."""

import inspect

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.aio.handles import AsyncKeyHandle, AsyncLimit
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.keyspace.limiter_calls import LimiterCalls
from batchlimit.stores import AsyncStore, RedisStore, Store
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.sync.handles import KeyHandle, Limit
from batchlimit.types import AsyncReservation, Reservation

TWINS = [
    (RateLimiter, AsyncRateLimiter),
    (KeyHandle, AsyncKeyHandle),
    (Reservation, AsyncReservation),
    (Limit, AsyncLimit),
]


def _public(twin: type) -> dict[str, object]:
    return {name: value for name, value in vars(twin).items() if not name.startswith("_")}


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins[0].__name__)
def test_both_apis_have_the_same_public_names_in_the_same_order(twins: tuple[type, type]) -> None:
    threads, tasks = twins
    assert list(_public(threads)) == list(_public(tasks))


def _methods(twins: tuple[type, type]) -> list[tuple[type, type, str]]:
    return [(*twins, name) for name in _public(twins[0])]


@pytest.mark.parametrize(("threads", "tasks", "name"), [each for twins in TWINS for each in _methods(twins)], ids=str)
def test_a_method_has_the_same_parameters_and_says_the_same_first(threads: type, tasks: type, name: str) -> None:
    ours, theirs = getattr(threads, name), getattr(tasks, name)
    assert _first_line(ours) == _first_line(theirs)
    if callable(ours):
        assert _parameters(ours) == _parameters(theirs)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _parameters(method: object) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults; what a parameter may be differs where it has to (stores)."""
    assert callable(method)
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(
    "name", sorted(_public(RateLimiter).keys() & (_public(LimiterCalls) | _public(BaseRateLimiter)))
)
def test_a_method_has_the_parameters_that_its_documentation_shows(name: str) -> None:
    shown = getattr(LimiterCalls, name, None) or vars(BaseRateLimiter)[name]
    assert _parameters(getattr(RateLimiter, name)) == _parameters(shown)


def test_limiters_of_both_apis_are_made_of_the_same() -> None:
    assert _parameters(RateLimiter.__init__) == _parameters(AsyncRateLimiter.__init__)


@pytest.mark.parametrize("twins", [(Store, AsyncStore), (RedisStore, AsyncRedisStore)], ids=["protocol", "redis"])
def test_stores_talk_alike(twins: tuple[type, type]) -> None:
    """What differs is what differs in life: a loop may end under a store, and closing is awaited."""
    threads, tasks = (set(_public(each)) for each in twins)
    # A loop has no time that a call could take from it, and calls that begin together there travel together anyway.
    # A store for threads has a `part` of its own, as a call then passes a file less.
    # What operators do is done by threads: an AsyncAdmin has one.
    assert threads - tasks - {"is_prompt", "take_many", "part"} - {
        "reset",
        "note",
        "primaries",
        "slots",
        "is_cluster",
    } == {"close"}
    # And a thread that asks is there to wait for the answer: a task is one more for the loop to run.
    assert tasks - threads - {"send", "send_spend"} == {"aclose", "renew", "disconnect"}
    for name in ("take", "give_back", "peek", *({"spend"} & threads)):
        assert _parameters(getattr(twins[0], name)) == _parameters(getattr(twins[1], name))
