"""Tokens and a permit, both or none: for threads and tasks, and each kind of concurrency limiter."""

import asyncio
import itertools
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from batchlimit import (
    AsyncConcurrencyLimiter,
    AsyncRateLimiter,
    ConcurrencyLimited,
    ConcurrencyLimiter,
    LimiterClosed,
    Queue,
    RateLimited,
    RateLimiter,
)
from batchlimit.admission import Admission, AsyncAdmission
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter
from batchlimit.laws import Fixed
from batchlimit.shared import AsyncSharedConcurrencyLimiter, Shared, SharedConcurrencyLimiter
from batchlimit.testing import fake_limiter, frozen_limits
from tests.servers import Server
from tests.sync.interrupter import Interrupter
from tests.sync.stage import DEADLINE, start, until

# On the clock of the machine: leases last for seconds, so that no stall loses a token.
pytestmark = pytest.mark.usefixtures("far_away")

QUEUE = Queue(9, None)
THREADED: dict[str, Callable[[], Any]] = {
    "one": lambda: ConcurrencyLimiter(Fixed(1), queue=QUEUE),
    "keyed": lambda: KeyedConcurrencyLimiter({"gpu": Keyed(1, queue=QUEUE)}),
    "shared": lambda: SharedConcurrencyLimiter.from_url("memory://", {"gpu": Shared(1, queue=QUEUE)}),
}
ASYNC: dict[str, Callable[[], Any]] = {
    "one": lambda: AsyncConcurrencyLimiter(Fixed(1), queue=QUEUE),
    "keyed": lambda: AsyncKeyedConcurrencyLimiter({"gpu": Keyed(1, queue=QUEUE)}),
    "shared": lambda: AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": Shared(1, queue=QUEUE)}),
}
KINDS = pytest.mark.parametrize("kind", list(THREADED))
QUOTAS = {"user": "2/hour", "all": "5/hour"}


class Sides:
    """Both limiters behind one face, whichever the API."""

    def __init__(self, kind: str) -> None:
        self.rates: Any = RateLimiter.from_url("memory://", QUOTAS)
        self.permits = THREADED[kind]()
        self.admission: Any = Admission(self.rates, self.permits)
        self.name = "" if kind == "one" else "gpu"

    def do(self, call: Callable[[], Any]) -> Any:
        return call()

    def admit(self, rate: Any, **options: Any) -> Any:
        return self.do(lambda: self.admission.admit(rate, self.name, **options))

    def hold(self) -> Any:
        return self.do(lambda: self.permits.acquire(self.name))

    @property
    def left(self) -> list[int]:
        """Tokens of each key."""
        return [self.do(lambda key=key: self.rates.peek(key)).remaining for key in QUOTAS]  # type: ignore[misc]

    @property
    def in_flight(self) -> int:
        told = self.permits.statistics()
        found = getattr(told, "patterns", None) or getattr(told, "keys", None)
        return told.in_flight if hasattr(told, "in_flight") else sum(each.in_flight for each in (found or {}).values())

    def close(self) -> None:
        self.do(self.rates.close)
        self.do(self.permits.close)


class AsyncSides(Sides):
    """The same for tasks."""

    def __init__(self, kind: str) -> None:
        self.runner = asyncio.Runner()
        self.rates = AsyncRateLimiter.from_url("memory://", QUOTAS)
        self.permits = ASYNC[kind]()
        self.admission = AsyncAdmission(self.rates, self.permits)
        self.name = "" if kind == "one" else "gpu"

    def do(self, call: Callable[[], Any]) -> Any:
        async def called() -> Any:
            while self.admission._refunds:  # those of a caller who was refused, which did not wait for them
                await asyncio.wait(self.admission._refunds)
            found = call()
            return await found if isinstance(found, Awaitable) else found

        return self.runner.run(called())

    def close(self) -> None:
        super().close()
        self.runner.close()


@pytest.fixture(params=[(api, kind) for api in (Sides, AsyncSides) for kind in THREADED], ids=str)
def sides(request: pytest.FixtureRequest) -> Iterator[Sides]:
    """Each API with each kind of limiter."""
    api, kind = request.param
    sides = api(kind)
    yield sides
    sides.close()


def end(permit: Any) -> None:
    """Complete a permit of any kind."""
    permit.release() if hasattr(permit, "release") else permit.success()


def test_a_call_that_is_admitted_has_paid_and_holds(sides: Sides) -> None:
    permit = sides.admit({"user": 2, "all": 3}, timeout=9.0)
    assert (sides.left, sides.in_flight) == ([0, 2], 1)
    end(permit)
    assert (sides.left, sides.in_flight) == ([0, 2], 0)


def test_one_key_is_charged_its_cost(sides: Sides) -> None:
    end(sides.admit("all", cost=4))
    assert sides.left == [2, 1]


@pytest.mark.parametrize("timeout", [0, 0.01])
@pytest.mark.parametrize(
    ("tokens", "room", "expected"),
    [
        (False, True, RateLimited),
        (True, False, ConcurrencyLimited),
        (False, False, (RateLimited, ConcurrencyLimited)),
    ],
)
def test_what_is_short_refuses_and_the_other_is_as_before(
    sides: Sides, tokens: bool, room: bool, expected: Any, timeout: float
) -> None:
    spent = 0 if tokens else 2
    sides.do(lambda: sides.rates.acquire("user", spent))
    other = None if room else sides.hold()
    with pytest.raises(expected) as refused:
        sides.admit({"user": 1, "all": 1}, timeout=timeout)
    if isinstance(refused.value, RateLimited):
        assert refused.value.key == "user"
    assert (sides.left, sides.in_flight) == ([2 - spent, 5], 0 if room else 1)
    if other is not None:
        end(other)


def test_over_the_rate_nobody_takes_a_place_in_the_queue() -> None:
    """Tokens that cannot come in time are known before the wait for a permit, which would be in vain."""
    with frozen_limits(), RateLimiter.from_url("memory://", "1/hour") as rates:
        backend = ConcurrencyLimiter(Fixed(1), queue=QUEUE)
        both = Admission(rates, backend)
        with both.admit("user"), pytest.raises(RateLimited):
            both.admit("user", timeout=600)  # real seconds, if it stood in the queue
        backend.close()


def test_who_waits_for_tokens_holds_no_permit() -> None:
    with frozen_limits() as limits, RateLimiter.from_url("memory://", "1/minute") as rates:
        backend = ConcurrencyLimiter(Fixed(1))
        both = Admission(rates, backend)
        both.admit("user").success()
        with limits.holding():
            waits = start(lambda: both.admit("user", timeout=90))
            # At first it asks for both, and is one that waits for the store's answer.
            until(lambda: rates.statistics().waiting == 1 and backend.statistics().in_flight == 0)
        waits.result(DEADLINE).success()
        assert (round(limits.elapsed), backend.statistics().succeeded) == (60, 2)
        backend.close()


@pytest.mark.parametrize(
    ("said", "ranks"), [({}, 1), ({"priority": 7}, 7), ({"priority": -1}, 1), ({"priority": 101}, 100)]
)
def test_who_waits_for_tokens_ranks_by_the_priority_of_the_call(
    said: Any, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter, told = fake_limiter(refuses={"user": 1.0}), list[int]()
    monkeypatch.setattr(limiter, "acquire_all", lambda costs, timeout, priority=1: told.append(priority))
    with ConcurrencyLimiter(Fixed(1), queue=QUEUE) as backend, Admission(limiter, backend).admit("user", **said):
        assert told == [ranks]


@KINDS
def test_who_waits_for_a_permit_holds_no_tokens(kind: str) -> None:
    sides = Sides(kind)
    other = sides.hold()
    waits = start(lambda: sides.admit("user", cost=2, timeout=DEADLINE))
    while not is_waiting(sides):
        pass
    assert sides.left == [2, 5]
    end(other)
    end(waits.result(DEADLINE))
    assert (sides.left, sides.in_flight) == ([0, 5], 0)
    sides.close()


def is_waiting(sides: Sides) -> bool:
    """Whether somebody stands in the queue for a permit, for longer than an answer takes."""
    told = sides.permits.statistics()
    if isinstance(sides.permits, SharedConcurrencyLimiter):
        holdings = sides.permits._engine.holdings
        with holdings.lock:  # else the caller joins and leaves while its line is counted
            return any(each.line.patient for each in holdings)
    return bool(told.waiting if hasattr(told, "waiting") else told.patterns["gpu"].waiting)


def test_a_cancelled_task_leaves_nothing_behind() -> None:
    async def main(kind: str) -> tuple[int, int]:
        rates, permits = AsyncRateLimiter.from_url("memory://", QUOTAS, deadline=30.0), ASYNC[kind]()
        name = "" if kind == "one" else "gpu"
        both = AsyncAdmission(rates, permits)
        for turns in range(40):  # cancelled sooner and later on its way
            held = await permits.acquire(name) if turns % 2 else None
            task = asyncio.ensure_future(both.admit("user", name, cost=2).__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                end(task.result())
                await rates.refund("user", 2)
            if held is not None:
                end(held)
            while both._refunds:
                await asyncio.wait(both._refunds)
        left = (await rates.peek("user")).remaining
        last = await permits.acquire(name, timeout=DEADLINE)  # there is room
        end(last)
        await rates.close()
        await permits.close()
        return left, 0

    for kind in ASYNC:
        assert asyncio.run(main(kind)) == (2, 0)


@pytest.mark.parametrize("room", [True, False])
def test_an_interrupt_anywhere_keeps_no_permit_and_mints_no_token(room: bool) -> None:
    lines = next(n for n in itertools.count(1) if not _interrupted(n, room))
    assert lines > 20


def _interrupted(n: int, room: bool) -> bool:
    """Interrupt a call at the nth line that it comes to; return whether it came so far."""
    with RateLimiter.from_url("memory://", QUOTAS) as rates, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of a permit that came just then
        backend = ConcurrencyLimiter(Fixed(1), queue=Queue(9, 0.001))
        other = None if room else backend.acquire()
        both = Admission(rates, backend)
        interrupter = Interrupter(n, "admission/admission", "admission/permit", under_lock=True)

        def call() -> None:
            try:
                both.admit("user", cost=2).success()
            except ConcurrencyLimited:
                assert not room

        was = interrupter.run(call)
        if other is not None:
            other.success()
        assert backend.statistics().in_flight == 0, f"a permit is held since {interrupter.line}"
        assert rates.peek("user").remaining in ((0, 2) if was or room else (2,)), f"minted in {interrupter.line}"
        backend.close()
    return was


def test_an_error_of_either_side_gives_the_other_back() -> None:
    limiter, backend = fake_limiter(), ConcurrencyLimiter(Fixed(1))
    limiter.script.fail("user")
    with pytest.raises(Exception, match="the store is down"):
        Admission(limiter, backend).admit("user")
    assert backend.statistics().in_flight == 0
    limiter.script.admit("user")
    backend.close()
    with pytest.raises(LimiterClosed):
        Admission(limiter, backend).admit("user")
    assert limiter.script.calls == limiter.script.refunds == []


def test_several_permits_of_a_keyed_limiter() -> None:
    with RateLimiter.from_url("memory://", QUOTAS) as rates, KeyedConcurrencyLimiter({"*": 1}) as keyed:
        with Admission(rates, keyed).admit("all", ["user:ann", "everybody"]) as permits:
            assert sorted(permits.keys) == ["everybody", "user:ann"]  # type: ignore[union-attr]
        with keyed.acquire("everybody"), pytest.raises(ConcurrencyLimited) as refused:
            Admission(rates, keyed).admit("all", ["user:ann", "everybody"])
        assert (refused.value.key, rates.peek("all").remaining) == ("everybody", 4)


@pytest.mark.parametrize(
    ("rates", "permits", "said"),
    [
        (None, "one", "rates must be of RateLimiter"),
        (fake_limiter(), AsyncConcurrencyLimiter(), "concurrency must be one of ConcurrencyLimiter"),
    ],
)
def test_limiters_of_another_kind_are_refused(rates: Any, permits: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Admission(rates, permits)


def test_several_keys_are_for_a_keyed_limiter() -> None:
    with ConcurrencyLimiter(Fixed(1)) as backend, pytest.raises(TypeError, match="one key or partition"):
        Admission(fake_limiter(), backend).admit("user", ["a", "b"])


def more(both: Any) -> int:
    """Admit calls until one is refused for want of tokens; return how many."""
    count = 0
    while True:
        try:
            both.admit("user", "gpu", timeout=0).release()
        except RateLimited:
            return count
        except ConcurrencyLimited:
            continue  # the permits are on their way back
        count += 1


def test_over_instances_on_one_server_neither_limit_is_passed(valkey: Server, prefix: str) -> None:
    """Two instances share 60 tokens and 3 permits: 40 calls, never more than 3 at once, and then at most 20 more.

    Not all of the 20: what a stalled process has leased may lapse.
    """
    options: Any = {"prefix": prefix, "connect_timeout": 30.0, "deadline": 30.0}
    quota = {"user": "0.0001/s burst 60"}
    lock, inside, most = threading.Lock(), [0], [0]

    def work(both: Any) -> None:
        for _ in range(5):
            with both.admit("user", "gpu"):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with lock:
                    inside[0] -= 1

    with (
        RateLimiter.from_url(valkey.url, quota, **options) as one,
        RateLimiter.from_url(valkey.url, quota, **options) as other,
        SharedConcurrencyLimiter.from_url(valkey.url, {"gpu": 3}, **options) as here,
        SharedConcurrencyLimiter.from_url(valkey.url, {"gpu": 3}, **options) as there,
    ):
        pairs = [Admission(one, here), Admission(other, there)]
        works = [start(lambda both=both: work(both)) for both in pairs * 4]  # type: ignore[misc]
        for each in works:
            each.result(DEADLINE)
        assert 1 <= most[0] <= 3
        assert sum(more(both) for both in pairs) <= 20
        assert here.statistics().keys.get("gpu") is None or here.statistics().keys["gpu"].in_flight == 0


@pytest.mark.parametrize("sides", [(AsyncSides, "one")], indirect=True)
def test_a_task_that_was_refused_enters_again_by_the_same_call(sides: Sides) -> None:
    held, call = sides.hold(), sides.do(lambda: [sides.admission.admit("all", timeout=0)])[0]
    with pytest.raises(ConcurrencyLimited):
        sides.do(lambda: call)
    end(held)
    end(sides.do(lambda: call))
    assert sides.left == [2, 4]
