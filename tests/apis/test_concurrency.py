"""What both concurrency limiters do alike: outcomes, refusals, bypass, shares under a flood, bad arguments."""

import asyncio
import gc
import gzip
import json
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from batchlimit import (
    AsyncConcurrencyLimiter,
    ConcurrencyLimited,
    ConcurrencyLimiter,
    LimiterClosed,
    Partitions,
    Queue,
    RateLimited,
    laws,
)
from batchlimit.concurrency import Law, Outcome, Permit, Sample, Shedding
from batchlimit.concurrency.law import LawState
from batchlimit.concurrency.permit import BasePermit
from batchlimit.concurrency.watchers import LatencyWatcher
from batchlimit.laws import AIMD, Fixed, Gitaly, Settable
from tests.apis.keyed import Told
from tests.awaiting import awaited
from tests.concurrency.laws.traces import law_of
from tests.recording import Recording
from tests.sync.stage import DEADLINE, start, until

SECOND = 1_000_000_000


def law_that(update: Callable[[], Any], limit: int = 5) -> Fixed:
    """A law that returns or raises this after each call."""

    class Doing(Fixed):
        def update(self, sample: Sample) -> int:
            return update()  # type: ignore[no-any-return]

    return Doing(limit)


def fails(*_: Any) -> Any:
    raise ZeroDivisionError


def ends(limiter: Any) -> tuple[int, int, int]:
    """How many calls succeeded, were dropped and ignored."""
    seen = limiter.statistics()
    return seen.succeeded, seen.dropped, seen.ignored


class Clock:
    """ns that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


class Blocking:
    """An AsyncConcurrencyLimiter for threads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._inner = AsyncConcurrencyLimiter(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        awaited(self._inner.close)

    def acquire(self, *args: Any, **options: Any) -> Any:
        async def enter() -> Any:
            return await self._inner.acquire(*args, **options)

        return awaited(enter)


@pytest.fixture(params=[ConcurrencyLimiter, Blocking], ids=["threads", "asyncio"])
def limiter(request: pytest.FixtureRequest) -> Any:
    """What makes limiters."""
    return request.param


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_call_is_a_sample(limiter: Any, clock: Clock) -> None:
    law = Recording()
    here = limiter(law, clock=clock)
    with here.acquire(operation="read"), here.acquire():
        clock.pass_by(0.25)
    start, rtt = 1000 * SECOND, SECOND // 4
    assert law.samples == [Sample(start, rtt, 2, False, ""), Sample(start, rtt, 1, False, "read")]


class OwnError(Exception):
    """An error of a user."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError(), Outcome.DROPPED),
        (ConnectionResetError(), Outcome.DROPPED),
        (ConcurrencyLimited("limit", None, limit=1, in_flight=1), Outcome.DROPPED),
        (asyncio.CancelledError(), Outcome.IGNORED),
        (KeyboardInterrupt(), Outcome.IGNORED),
        (GeneratorExit(), Outcome.IGNORED),
        (ValueError(), Outcome.IGNORED),
        (RateLimited("k", 1.0), Outcome.IGNORED),
        (OwnError(), Outcome.IGNORED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.value,
)
def test_what_an_error_tells(limiter: Any, error: BaseException, outcome: Outcome) -> None:
    law = Recording()
    here = limiter(law)
    with pytest.raises(type(error)), here.acquire():
        raise error
    assert [sample.dropped for sample in law.samples] == ([True] if outcome is Outcome.DROPPED else [])
    assert ends(here) == (0, outcome is Outcome.DROPPED, outcome is Outcome.IGNORED)


def test_a_classifier_of_ones_own(limiter: Any) -> None:
    here = limiter(
        Recording(), classify=lambda error: Outcome.SUCCESS if isinstance(error, OwnError) else Outcome.DROPPED
    )
    with pytest.raises(OwnError), here.acquire():
        raise OwnError
    with pytest.raises(ValueError, match="x"), here.acquire():
        raise ValueError("x")
    assert (here.statistics().succeeded, here.statistics().dropped) == (1, 1)


@pytest.mark.parametrize("first", ["success", "drop", "ignore"])
def test_the_first_completion_counts(limiter: Any, first: str) -> None:
    here = limiter(Recording(2))
    other = here.acquire()
    with here.acquire() as permit:
        getattr(permit, first)()
        for again in ("success", "drop", "ignore"):
            getattr(permit, again)()
        assert here.statistics().in_flight == 1
    assert (*ends(here), here.statistics().in_flight) == (first == "success", first == "drop", first == "ignore", 1)
    other.success()


def test_a_permit_is_used_once(limiter: Any) -> None:
    permit = limiter(Fixed(1)).acquire()
    with permit:
        pass
    with pytest.raises(RuntimeError, match="was completed before"), permit:
        pass


def test_a_law_that_fails_costs_no_permit(limiter: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Never raise out of a release: the call has done its work, and its caller can do nothing about the law."""
    here = limiter(law_that(fails, 1))
    for _ in range(3):
        with here.acquire(timeout=0):
            pass
    assert here.statistics().succeeded == 3
    assert "the limit stays" in caplog.text


@pytest.mark.parametrize("wrong", [0, -5])
def test_a_limit_is_at_least_one(limiter: Any, wrong: int) -> None:
    here = limiter(law_that(lambda: wrong))
    here.acquire().success()
    assert here.limit == 1


def test_a_permit_left_to_the_collector_is_released(limiter: Any) -> None:
    """Also where warnings are errors."""
    law = Recording(1)
    here = limiter(law)
    for how in ("always", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(how)
            with _unraisable(how) as caught:
                here.acquire(operation="read")
                until(caught)  # the loop's thread may let go of it later than this one
    with here.acquire(timeout=0):
        pass
    seen = here.statistics()
    assert (seen.abandoned, seen.ignored, seen.succeeded, len(law.samples)) == (2, 2, 1, 1)


@contextmanager
def _unraisable(how: str) -> Iterator[Callable[[], bool]]:
    errors: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, errors.append
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(how)  # type: ignore[arg-type]
            yield lambda: len(errors if how == "error" else caught) == 1
    finally:
        sys.unraisablehook = hook


@contextmanager
def _interrupted_destructors() -> Iterator[Callable[[], bool]]:
    with (
        mock.patch("sys.unraisablehook"),
        mock.patch.object(BasePermit, "__del__", side_effect=KeyboardInterrupt) as ended,
    ):
        yield lambda: ended.called


@pytest.mark.parametrize("queue", [Queue(0), Queue(5)])
def test_a_permit_whose_destructor_was_interrupted_costs_no_place(limiter: Any, queue: Queue) -> None:
    """A handler that raised for the second time came before its first line: nobody is left who could do it again."""
    here = limiter(Fixed(1), queue=queue)
    with _interrupted_destructors() as has_come:
        here.acquire()
        until(has_come)
    with here.acquire(timeout=0):
        seen = here.statistics()
    assert (seen.in_flight, seen.abandoned, seen.ignored) == (1, 1, 1)


@pytest.mark.parametrize("strict", [False, True])
def test_a_share_that_was_lost_comes_back_to_whoever_is_refused(limiter: Any, strict: bool) -> None:
    here = limiter(Fixed(2), partitions=Partitions({"live": 0.5}, strict=strict))
    with _interrupted_destructors() as has_come:
        here.acquire("live")
        until(has_come)
    with here.acquire("live", timeout=0), here.acquire(timeout=0):
        seen = here.statistics()
    assert (seen.in_flight, seen.partitions["live"].in_flight) == (2, 1)


def test_a_permit_that_was_collected_is_over(limiter: Any) -> None:
    """Code that reaches it, in the warning or in a finalizer of the same cycle, completes nothing a second time."""
    here = limiter(Fixed(5))
    other = here.acquire()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        here.acquire()
        until(lambda: len(caught) > 0)
    caught[0].source.success()  # type: ignore[union-attr]
    assert here.statistics().in_flight == 1
    other.success()


def test_a_block_that_the_collector_ends_amid_the_law_is_left_later(limiter: Any) -> None:
    """A generator in a cycle is closed wherever the collector runs: here in the thread that holds the lock."""
    held: list[Any] = []

    def block() -> Iterator[None]:
        with here.acquire():
            yield

    def untidy() -> int:
        while held:
            held.pop().close()
        return 5

    here = limiter(law_that(untidy))
    for _ in range(3):
        held.append(block())
        next(held[-1])
    here.acquire().success()
    seen = here.statistics()
    assert (seen.in_flight, seen.ignored, seen.succeeded) == (0, 3, 1)


def test_a_law_is_never_told_of_two_calls_at_once(limiter: Any) -> None:
    """A finalizer completes a permit during the law: that is told of it afterwards."""
    held: list[Any] = []
    told: list[str] = []

    def untidy() -> int:
        told.append("begin")
        while held:
            held.pop().success()
        told.append("end")
        return 5

    here = limiter(law_that(untidy))
    held.extend(here.acquire() for _ in range(2))
    here.acquire().success()
    assert told == ["begin", "end"] * 3
    assert here.statistics().in_flight == 0


def test_a_signal_handler_may_use_the_limiter(limiter: Any) -> None:
    """It runs in the main thread, during whatever that does: here during the law."""
    seen: list[int] = []

    def handle() -> int:
        seen.append(here.statistics().in_flight)
        getattr(here, "_inner", here)._locked_gate.close()
        return 5

    here = limiter(law_that(handle))
    permits = [here.acquire(), here.acquire()]
    permits[0].success()
    with pytest.raises(LimiterClosed):
        here.acquire()
    permits[1].success()
    assert seen == [1, 0]


def test_a_handler_that_raises_wherever_the_clock_is_read_costs_no_place(limiter: Any, clock: Clock) -> None:
    """Signal handlers raise where something is called. A permit is over and its place is free, or neither."""
    armed = False

    def now() -> int:
        if armed:
            raise KeyboardInterrupt
        return clock()

    here = limiter(Fixed(1), clock=now)
    permit = here.acquire()
    armed = True
    with pytest.raises(KeyboardInterrupt):
        permit.success()
    armed = False
    assert here.statistics().in_flight == 1
    permit.success()
    assert here.statistics().in_flight == 0


@pytest.mark.parametrize("wrong", [None, 2.5, "many", True])
def test_a_law_that_gives_no_number_is_as_one_that_fails(limiter: Any, wrong: Any, caplog: Any) -> None:
    here = limiter(law_that(lambda: wrong, 3))
    for _ in range(5):
        here.acquire().success()
    assert here.limit == 3
    assert caplog.text.count("the limit stays") == 1  # not once for each call


@pytest.mark.parametrize("wrong", [None, 2.5, float("inf"), "many", True])
def test_a_law_that_begins_with_no_number_is_refused_at_once(limiter: Any, wrong: Any) -> None:
    class Wrong(Fixed):
        @property
        def limit(self) -> int:
            return wrong  # type: ignore[no-any-return]

    with pytest.raises(TypeError, match=f"a law must give a whole number of calls, not {wrong!r}"):
        limiter(Wrong(3))


def test_a_log_handler_may_use_the_limiter(limiter: Any) -> None:
    class Curious(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(in_thread(lambda: here.statistics().succeeded))

    seen: list[int] = []
    here = limiter(law_that(fails, 1))
    handler = Curious()
    logging.getLogger("batchlimit").addHandler(handler)
    try:
        here.acquire().success()
    finally:
        logging.getLogger("batchlimit").removeHandler(handler)
    assert seen == [1]


def in_thread(job: Callable[[], int]) -> int:
    return start(job).result(DEADLINE)


@pytest.mark.parametrize("wrong", [None, "success", True])
def test_a_classifier_that_fails_ignores(limiter: Any, wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    def lenient(error: BaseException) -> Outcome:
        if wrong is None:
            raise ZeroDivisionError
        return wrong  # type: ignore[no-any-return]

    here = limiter(Recording(1), classify=lenient)
    with pytest.raises(OwnError), here.acquire():
        raise OwnError
    seen = here.statistics()
    assert (seen.in_flight, seen.ignored) == (0, 1)
    assert "the call is ignored" in caplog.text


def test_the_sample_of_a_call_that_waited_begins_when_it_was_served(limiter: Any, clock: Clock) -> None:
    law = Recording(1)
    here = limiter(law, queue=Queue(5, max_wait=None), clock=clock)
    first = here.acquire()
    second = start(here.acquire)
    until(lambda: here.statistics().waiting == 1)
    clock.pass_by(3)
    law.set_limit(2)
    permit = second.result(DEADLINE)
    clock.pass_by(1)
    permit.success()
    first.success()
    assert law.samples == [Sample(1003 * SECOND, SECOND, 2), Sample(1000 * SECOND, 4 * SECOND, 1)]


def test_a_call_that_waits_is_served_when_a_strict_share_is_lent(limiter: Any) -> None:
    """Nobody comes or goes: those who wait look themselves."""
    here = limiter(Fixed(1), partitions=Partitions({"live": 1.0}, strict=True), queue=Queue(5, max_wait=None))
    here.acquire("live").success()
    here.acquire("batch").success()


def refused(limiter: Any, *args: Any, **options: Any) -> ConcurrencyLimited:
    with pytest.raises(ConcurrencyLimited) as caught:
        limiter.acquire(*args, **options)
    return caught.value


def test_a_refusal_says_why(limiter: Any, clock: Clock) -> None:
    here = limiter(Fixed(2), partitions=Partitions({"live": 0.5}, strict=True), clock=clock)
    with here.acquire("live"):
        pass
    with here.acquire("batch"):
        assert refused(here, "batch").reason == "partition"
        with here.acquire("live"):
            error = refused(here, "live")
    assert (error.reason, error.limit, error.in_flight) == ("limit", 2, 2)
    assert here.statistics().refused == {"partition": 1, "limit": 1}


def test_a_name_without_a_share_is_counted_and_has_what_is_spare(limiter: Any) -> None:
    here = limiter(Fixed(2), partitions=Partitions({"live": 0.5}))
    for name in ("lvie", "", "live", "LIVE"):
        here.acquire(name).success()
    found = here.statistics()
    assert (found.unknown, found.succeeded, found.refused) == (2, 4, {})


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("queue", [Queue(5, max_wait=None), Queue(0)])
def test_a_name_without_a_share_is_refused_at_once_if_that_is_wanted(limiter: Any, queue: Queue, strict: bool) -> None:
    partitions = Partitions({"live": 0.5}, strict=strict, unknown="refuse")
    here = limiter(Fixed(2), partitions=partitions, queue=queue)
    error = refused(here, "lvie")
    here.acquire("live").success()
    here.acquire().success()
    assert (error.reason, error.retry_after) == ("unknown_partition", None)
    assert "no partition is named 'lvie'" in str(error)
    found = here.statistics()
    assert (found.unknown, found.succeeded, found.in_flight, found.refused) == (1, 2, 0, {"unknown_partition": 1})


def test_without_partitions_no_name_is_unknown(limiter: Any) -> None:
    here = limiter(Fixed(1))
    here.acquire("live").success()
    assert here.statistics().unknown == 0


def test_a_queue_of_patience_says_why(limiter: Any) -> None:
    here = limiter(Fixed(1), queue=Queue(1, max_wait=0.001))
    with here.acquire():
        assert refused(here).reason == "queue_timeout"
        assert refused(here, timeout=0).reason == "limit"
    assert here.statistics().refused == {"queue_timeout": 1, "limit": 1}


def test_only_calls_that_stood_in_the_queue_have_waited(limiter: Any) -> None:
    here = limiter(Fixed(1), queue=Queue(1, max_wait=0.001))
    with here.acquire():
        refused(here, timeout=0)
        assert here.statistics().waits.total == 0
        refused(here)
    here.acquire().success()
    waits = here.statistics().waits
    assert waits.total == 1
    assert waits.up_to[0] == 0, "it waited for a millisecond"


def test_a_refusal_says_when(limiter: Any, clock: Clock) -> None:
    """A place is free every 0.5 s / 2; nothing is known before a call has ended."""
    here = limiter(Fixed(2), clock=clock)
    with here.acquire(), here.acquire():
        assert refused(here).retry_after is None
        clock.pass_by(0.5)
    with here.acquire(), here.acquire():
        error = refused(here)
    assert error.retry_after == pytest.approx(0.25)
    assert str(error) == "refused (limit): 2 calls are under way, the limit is 2; retry after 0.250 s"


def test_a_refusal_counts_who_is_above_a_lower_limit(limiter: Any, clock: Clock) -> None:
    law = Settable(4)
    here = limiter(law, clock=clock)
    permits = [here.acquire() for _ in range(5 - 1)]
    clock.pass_by(1)
    permits.pop().success()
    law.set_limit(1)
    assert refused(here).retry_after == pytest.approx(3.0)
    for permit in permits:
        permit.success()


def test_a_refusal_says_when_a_share_will_be_lent(limiter: Any, clock: Clock) -> None:
    here = limiter(Fixed(1), partitions=Partitions({"live": 1.0}, strict=True), clock=clock)
    here.acquire("live").success()
    clock.pass_by(0.25)
    assert refused(here, "batch").retry_after == pytest.approx(0.75)
    clock.pass_by(0.75)
    here.acquire("batch").success()


def test_a_bypass_never_counts(limiter: Any) -> None:
    law = Recording(1)
    here = limiter(law, bypass=lambda operation, partition: operation == "health" or partition == "admin")
    with here.acquire(), here.acquire(operation="health"), here.acquire("admin"):
        assert (here.statistics().in_flight, here.statistics().bypassed) == (1, 2)
        assert refused(here, operation="other").reason == "limit"
    assert len(law.samples) == 1


@pytest.mark.parametrize("name", ["live", "lvie"])
def test_nobody_enters_a_closed_limiter(limiter: Any, name: str) -> None:
    here = limiter(Fixed(2), partitions=Partitions({"live": 0.5}, unknown="refuse"))
    inside = here.acquire()
    here.close()
    with pytest.raises(LimiterClosed):
        here.acquire(name)
    inside.success()
    assert here.statistics().succeeded == 1


def test_a_guaranteed_share_is_delivered_while_another_partition_floods(limiter: Any) -> None:
    """Of ten places seven are live's. Batch always wants ten; live, wanting seven, gets them every time."""
    here = limiter(Fixed(10), partitions=Partitions({"live": 0.7, "batch": 0.3}))
    delivered = wanted = 0
    flood: list[Any] = []
    for _ in range(100):
        for _ in range(20):
            _try(here, "batch", flood)
        live: list[Any] = []
        for _ in range(7):
            wanted += 1
            _try(here, "live", live)
        delivered += len(live)
        for permit in live + flood[:3]:
            permit.success()
        del flood[:3]
    for permit in flood:
        permit.success()
    assert delivered == wanted


def _try(limiter: Any, partition: str, into: list[Any]) -> None:
    try:
        into.append(limiter.acquire(partition, timeout=0))
    except ConcurrencyLimited:
        pass


@pytest.mark.parametrize(
    ("law", "options", "error", "message"),
    [
        (10, {}, TypeError, r"law must be a law, like Fixed\(20\), not 10"),
        (AIMD, {}, TypeError, "law must be a law"),
        (laws.Windowed(AIMD), {}, TypeError, "law must be a law, like .*, not <class .*AIMD"),  # type: ignore[arg-type]
        (laws.Periodic(5), {}, TypeError, r"law must be a law, like Fixed\(20\), not 5"),  # type: ignore[arg-type]
        (Gitaly(), {}, ValueError, "needs watchers"),  # calls teach it nothing: it would stay at 15 for ever
        (
            Fixed(1),
            {"partitions": {"live": 0.5}},
            TypeError,
            r"partitions must be like Partitions\(.*, not {'live': 0.5}",
        ),
        (Fixed(1), {"classify": 3}, TypeError, "classify must be a function, not 3"),
        (Fixed(1), {"bypass": False}, TypeError, "bypass must be a function, not False"),
        (Fixed(1), {"clock": 3}, TypeError, "clock must be a function, not 3"),
        (Fixed(1), {"queue": 5}, TypeError, r"queue must be like Queue\(100\), not 5"),
        (Fixed(1), {"shedding": Shedding()}, ValueError, "shedding needs watchers"),
        *((Fixed(1), {"watchers": [Told()], "every": every}, ValueError, "every") for every in (0, -1)),
        (Fixed(1), {"watchers": [Told()], "every": "1"}, TypeError, "every"),
    ],
)
def test_wrong_parts(limiter: Any, law: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        limiter(law, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *(({"timeout": wrong}, ValueError, "timeout must be None or") for wrong in (-1, float("nan"))),
        *(({"timeout": wrong}, TypeError, "timeout must be None or") for wrong in ("1", True)),
        *(({"priority": wrong}, TypeError, "priority must be a whole number") for wrong in (None, "high", 0.5, True)),
    ],
    ids=str,
)
def test_a_wrong_way_to_wait_is_told_at_once(limiter: Any, options: dict[str, Any], error: Any, message: str) -> None:
    here = limiter(Fixed(1), queue=Queue(2))
    with pytest.raises(error, match=message):
        here.acquire(**options)
    assert (here.statistics().in_flight, here.statistics().waiting) == (0, 0)


def test_a_child_of_a_fork_begins_empty(limiter: Any) -> None:
    """What the parent's calls hold is released there; completing it in the child changes nothing."""
    here = limiter(Fixed(2))
    permit = here.acquire()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that other tests left behind
        if (child := os.fork()) == 0:
            _in_child(here, permit, writer)
    os.close(writer)
    with os.fdopen(reader) as answers:
        assert answers.read() == "0 0 2"
    os.waitpid(child, 0)
    assert here.statistics().in_flight == 1
    permit.success()


def _in_child(limiter: Any, permit: Any, writer: int) -> None:
    try:
        first = limiter.statistics().in_flight
        permit.success()
        second = limiter.statistics().in_flight
        locked_gate = getattr(limiter, "_inner", limiter)._locked_gate
        entering = [Permit(locked_gate, "", 0, False) for _ in range(3)]
        for each in entering:
            with suppress(ConcurrencyLimited):
                each._enter("", 0.0)
        entered = limiter.statistics().in_flight
        os.write(writer, f"{first} {second} {entered}".encode())
    finally:
        os._exit(0)


def test_a_law_hears_of_the_watchers_each_period(limiter: Any) -> None:
    law, watcher = Gitaly(initial=10, minimum=1, maximum=20), Told()
    with closing(limiter(law, watchers=[watcher], every=0.001)) as here:
        until(lambda: here.limit == 20)
        watcher.event = "memory 0.95 of 1 GiB"
        until(lambda: here.limit == 1)
        watcher.event = None
        until(lambda: here.limit == 20)


def exposed(limiter: Any, priority: int = 0) -> Any:
    permit = limiter.acquire(sheddable=True, priority=priority)
    return awaited(permit.__aenter__) if isinstance(limiter, Blocking) else permit


def test_calls_above_a_limit_that_fell_are_shed_without_watchers_and_no_more_of_them(limiter: Any) -> None:
    """Those that were told count no longer as above it, however long they take to end."""
    law = Settable(4)
    with closing(limiter(law, every=0.001, shedding=Shedding(over=2, share=1))) as here:
        permits = [exposed(here, priority) for priority in (4, 1, 2, 3)]
        law.set_limit(2)
        until(lambda: here.statistics().shed >= 2)
        rounds = getattr(here, "_inner", here)._rounds
        rounds.stop()  # the test ends the next periods
        for _ in range(5):
            rounds._tell(())
        assert [permit.shed for permit in permits] == [False, True, True, False]
        assert here.statistics().shed == 2
        for permit in permits:
            permit.ignore()


def test_a_call_that_passes_by_is_not_shed(limiter: Any) -> None:
    here = limiter(Fixed(9), bypass=lambda operation, _partition: operation == "health")
    healthy, doomed = here.acquire(operation="health", sheddable=True), exposed(here)
    assert getattr(here, "_inner", here)._locked_gate.excess()[1] == [doomed]
    for each in (healthy, doomed):
        each._shed()
    assert here.statistics().shed == 1
    healthy.success()
    doomed.ignore()


class Broken(Gitaly):
    """A law that fails at the end of each period."""

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        raise ZeroDivisionError


@pytest.mark.parametrize("law", [Gitaly, Broken])
def test_what_persists_is_shed_also_where_the_law_fails(limiter: Any, law: Any) -> None:
    watcher = Told()
    shedding = Shedding(after=3)
    with closing(limiter(law(initial=9), watchers=[watcher], every=0.001, shedding=shedding)) as here:
        doomed = exposed(here)
        watcher.event = "memory"
        until(lambda: here.statistics().shed == 1)
        doomed.ignore()


def test_a_key_of_shedding_may_use_the_limiter(limiter: Any) -> None:
    watcher = Told()
    watcher.event = "memory"

    def key(call: Any) -> int:
        return in_thread(lambda: here.statistics().in_flight)

    with closing(limiter(Fixed(9), watchers=[watcher], every=0.001, shedding=Shedding(after=1, key=key))) as here:
        doomed = exposed(here)
        until(lambda: here.statistics().shed == 1)
        doomed.ignore()


def test_a_latency_watcher_hears_of_each_call(limiter: Any, clock: Clock) -> None:
    watcher = LatencyWatcher(target=0.1)
    with closing(limiter(Fixed(2), watchers=[watcher], clock=clock)) as here:
        until(lambda: here.statistics().watchers[0].polls == 1)
        with here.acquire():
            clock.pass_by(0.2)
        assert watcher.poll() is not None


def test_a_limiter_that_nobody_has_watches_nothing(limiter: Any) -> None:
    """Its thread ends with it."""

    watcher: Any = Told()
    gone = weakref.ref(watcher)
    here = limiter(Fixed(1), watchers=[watcher], every=0.001)
    del watcher
    assert gone() is not None
    del here
    until(lambda: gc.collect() >= 0 and gone() is None)


def test_a_call_that_matters_more_is_served_first_and_displaces_what_matters_least(limiter: Any) -> None:
    here = limiter(Fixed(1), queue=Queue(2, max_wait=None))
    held = here.acquire()
    low = start(lambda: here.acquire(priority=0))
    until(lambda: here.statistics().waiting == 1)
    middle = start(lambda: here.acquire(priority=1))
    until(lambda: here.statistics().waiting == 2)
    high = start(lambda: here.acquire(priority=2))
    with pytest.raises(ConcurrencyLimited) as refused_for_it:
        low.result(DEADLINE)
    assert refused_for_it.value.reason == "queue_full"
    held.success()
    high.result(DEADLINE).success()
    middle.result(DEADLINE).success()
    seen = here.statistics()
    assert (seen.succeeded, seen.waiting, seen.refused) == (3, 0, {"queue_full": 1})


# What is told of a limit: each change of it, and the baselines behind it


def test_a_listener_is_told_of_a_limit_that_an_operator_set_once_it_holds(limiter: Any) -> None:
    law, told = Settable(3), []
    with closing(limiter(law)) as here:
        here.listen(lambda before, after, why: told.append((before, after, why, here.limit)), why=True)
        for limit in (5, 5, 2):
            law.set_limit(limit)
    assert told == [(3, 5, "operator", 5), (5, 2, "operator", 2)]


def test_a_listener_that_asks_why_is_told(limiter: Any) -> None:
    told: list[tuple[int, int, str]] = []
    clock = Clock()
    with closing(limiter(AIMD(initial=30, minimum=10, timeout=5), clock=clock)) as here:
        here.listen(lambda *change: told.append(change), why=True)
        here.acquire().drop()
        permit = here.acquire()
        clock.pass_by(6)
        permit.success()
        for permit in [here.acquire() for _ in range(12)]:
            permit.success()
        seen = here.statistics()
    assert told == [(30, 27, "loss"), (27, 24, "late"), (24, 25, "room")]
    assert (seen.lowered_by, seen.raised_by) == ({"loss": 1, "late": 1}, {"room": 1})
    assert (seen.lowered, seen.raised) == (2, 1)


@pytest.mark.parametrize("wrapped", [lambda law: law, laws.Watched])
def test_a_law_says_why_also_if_it_is_wrapped(wrapped: Any) -> None:
    class Moody(Fixed):
        @property
        def state(self) -> LawState:
            return LawState("mood", 1.5, 7)

        def update(self, sample: Sample) -> int:
            return 4

    told: list[str] = []
    with closing(ConcurrencyLimiter(wrapped(Moody(5)))) as here:
        here.listen(lambda before, after, why: told.append(why), why=True)
        here.acquire().success()
        seen = here.statistics()
    assert (told, seen.ratio, seen.settled_limit) == (["mood"], 1.5, 7)


def test_a_listener_is_told_of_what_the_watchers_bring(limiter: Any) -> None:
    told: list[tuple[int, int, str]] = []
    watcher = Told()
    watcher.event = "trouble"
    with closing(limiter(AIMD(initial=100, timeout=5), watchers=[watcher], every=0.001)) as here:
        here.listen(lambda *change: told.append(change), why=True)
        here.acquire().success()  # a drop is made of this call
        until(lambda: bool(told))
    assert told[0] == (100, 90, "watchers")


def test_a_listener_may_use_the_limiter(limiter: Any) -> None:
    law, entered = Settable(1), []
    with closing(ConcurrencyLimiter(law)) as here:

        def enter(before: int, after: int) -> None:
            here.acquire().success()
            entered.append(here.statistics().succeeded)

        here.listen(enter)
        law.set_limit(2)
    assert entered == [1]


def test_a_listener_that_raises_is_logged_and_holds_nobody_up(limiter: Any, caplog: pytest.LogCaptureFixture) -> None:
    law, told = Settable(1), []
    with closing(limiter(law)) as here, caplog.at_level(logging.ERROR):
        here.listen(lambda before, after: 1 / 0)
        here.listen(lambda before, after: told.append(after))
        law.set_limit(2)
        here.acquire().success()
    assert told == [2]
    assert [record.batchlimit_event for record in caplog.records] == ["limit.listener_failed"]  # type: ignore[attr-defined]


def test_a_listener_is_a_function(limiter: Any) -> None:
    with closing(limiter(Fixed(1))) as here, pytest.raises(TypeError, match="changed must be a function"):
        here.listen(5)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (laws.Vegas(), {"": 0.25}),
        (laws.Gradient(), {"": 0.25}),
        (laws.Gradient2(), {"": 0.25}),
        (laws.Periodic(laws.Vegas(), every=0.2), {"": 0.25}),
        (laws.Tumbling(laws.Vegas(), calls=1), {"": 0.25}),
        (Fixed(5), {}),
        (laws.Windowed(AIMD(timeout=5)), {}),
    ],
)
def test_statistics_tell_the_baseline_of_a_law_also_of_one_that_is_wrapped(law: Any, expected: Any) -> None:
    clock = Clock()
    with closing(ConcurrencyLimiter(law, clock=clock)) as here:
        assert here.statistics().baselines == {}
        for _ in range(2):
            with here.acquire():
                clock.pass_by(0.25)
        assert here.statistics().baselines == expected


def test_statistics_tell_the_baseline_of_each_operation_that_the_default_law_knows() -> None:
    law, times = laws.Knee(), {"read": 10_000_000, "write": 40_000_000}
    for number in range(4000):
        for operation, rtt in times.items():
            law.update(Sample(number * 5_000_000, rtt, 2, False, operation))
    with closing(AsyncConcurrencyLimiter(law)._locked_gate) as gate:
        baselines = gate.statistics(()).baselines
    assert baselines == pytest.approx({"read": 0.01, "write": 0.04})


# What a recorded limiter answered is replayed: whom it admits, and its limit after each call that ended
RECORD = Path(__file__).parent / "golden" / "ops_simple_clock.json.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(RECORD) as file:
        told = json.load(file)
    assert told["format"] == "batchlimit-golden-ops/1"
    found: list[dict[str, Any]] = told["cases"]
    return found


def law(told: dict[str, Any]) -> Law:
    return law_of(told["algorithm"], {name: value for name, value in told.items() if name != "rest"})


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["limit"]["algorithm"])
@pytest.mark.parametrize("api", [ConcurrencyLimiter, Blocking])
def test_a_limiter_replays_its_original_row_for_row(api: Any, case: dict[str, Any]) -> None:
    now = 0
    limiter = api(law(case["limit"]), clock=lambda: now)
    permits: dict[int, Any] = {}
    assert limiter.limit == case["initial_limit"]
    for number, (operation, accepted, limit, in_flight) in enumerate(case["rows"]):
        verb, now, call = operation[:3]
        if verb == "acquire":
            try:
                permits[call] = limiter.acquire(timeout=0)
            except ConcurrencyLimited:
                pass
            assert (call in permits) == accepted, f"row {number}"
        else:
            getattr(permits.pop(call), operation[3])()
        seen = limiter.statistics()
        assert (seen.limit, seen.in_flight) == (limit, in_flight), f"row {number}"
    for permit in permits.values():
        permit.ignore()
