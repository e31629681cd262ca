"""The rivals do what they are said to do: a baseline that is wrong would flatter us."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Quota, StoreUnavailable
from batchlimit.batching import FixedBatch, GrowingBatch
from benchmarks.rivals import (
    Batched,
    Course,
    Driver,
    PerCall,
    PlainBucket,
    PlainStore,
    Reporter,
    Request,
    Rival,
    Take,
    Tell,
)
from benchmarks.rivals.store import SCRIPT, arguments
from benchmarks.web_rivals import LIMIT, PATHS, call, with_batchlimit
from tests.lua.interpreter import Interpreter
from tests.servers import Server

QUOTA = Quota(10.0, 100)
PATIENCE = 60.0

Step = tuple[int, bool, list[tuple[Request, int]]]
"""What a call costs, whether it is admitted, and what is asked for it and answered."""


class Desk:
    """A store that answers from a list; without an answer it fails, and while it is shut whoever asks waits."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.reached, self.open = Event(), Event()
        self.open.set()

    def ask(self, request: Request) -> int:
        self.requests.append(request)
        self.reached.set()
        assert self.open.wait(PATIENCE)
        if not self.answers:
            raise StoreUnavailable("no answer")
        return self.answers.pop(0)

    def close(self) -> None:
        self.answers.clear()


def decide(rival: Rival, cost: int, answers: list[int]) -> tuple[bool, list[Request]]:
    course, requests = Course(rival.admit(cost, 0.0)), []
    while course.request is not None:
        requests.append(course.request)
        course.answer(answers.pop(0))
    return course.verdict, requests


def part(tokens: int) -> Take:
    return Take(tokens, whole=False)


@pytest.mark.parametrize(
    ("rival", "steps"),
    [
        (PerCall(), [(3, True, [(Take(3, True), 3)]), (3, False, [(Take(3, True), 0)])]),
        (
            Batched(FixedBatch(4), QUOTA),
            [
                (3, True, [(part(4), 4)]),
                (1, True, []),
                # A part of a batch will do, and what does not suffice is kept for a smaller call.
                (2, False, [(part(4), 1)]),
                (1, True, []),
                # No memory of a denial; and a cost above the batch asks for itself.
                (1, False, [(part(4), 0)]),
                (1, False, [(part(4), 0)]),
                (9, True, [(part(9), 9)]),
            ],
        ),
        (
            Batched(GrowingBatch(10), QUOTA),
            [
                (10, True, [(part(10), 10)]),
                (15, True, [(part(15), 15)]),
                (23, True, [(part(23), 23)]),
                (35, True, [(part(35), 35)]),
                (53, True, [(part(53), 53)]),
                (80, True, [(part(80), 100)]),
                # Never past the burst.
                (21, False, [(part(100), 0)]),
            ],
        ),
        (Reporter(), [(3, True, [(Tell(0), 5)]), (3, False, []), (2, True, []), (1, False, [])]),
    ],
    ids=["per call", "fixed", "growing", "reporter"],
)
def test_what_is_asked_for_each_call(rival: Rival, steps: list[Step]) -> None:
    for cost, admitted, asked in steps:
        assert decide(rival, cost, [answer for _, answer in asked]) == (admitted, [request for request, _ in asked])


def test_a_report_counts_what_was_spent_while_it_was_under_way() -> None:
    rival = Reporter()
    assert not list(rival.background(0.0))
    assert decide(rival, 3, [10]) == (True, [Tell(0)])
    round_trip = Course(rival.background(0.1))
    assert round_trip.request == Tell(3)
    assert decide(rival, 7, []) == (True, [])
    assert decide(rival, 1, []) == (False, [])
    round_trip.answer(20)
    assert decide(rival, 14, []) == (False, [])
    assert decide(rival, 13, []) == (True, [])


def test_one_errand_at_a_time_and_who_waited_looks_again() -> None:
    desk = Desk(4)
    desk.open.clear()
    driver = Driver(Batched(FixedBatch(4), QUOTA), desk)

    def call() -> tuple[bool, int]:
        return driver.try_acquire("key"), driver.tally.waited

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(call)
        assert desk.reached.wait(PATIENCE)
        others = [pool.submit(call) for _ in range(3)]
        desk.open.set()
        assert [each.result(PATIENCE)[0] for each in (first, *others)] == [True] * 4
        assert first.result() == (True, 1)
    assert desk.requests == [part(4)]
    assert driver.statistics().calls == 1


def test_rounds_go_on_in_the_background_until_it_is_closed() -> None:
    desk = Desk(5, 5, 5)
    driver = Driver(Reporter(0.001), desk)
    assert driver.try_acquire("key", 2)
    desk.reached.clear()
    assert desk.reached.wait(PATIENCE)
    driver.close()
    assert desk.requests[:2] == [Tell(0), Tell(2)]
    assert not driver._thread.is_alive()


# Ours is what the page says of it, on the application that the others are measured with


def test_every_route_is_limited_and_every_response_starts_once() -> None:
    app = with_batchlimit()

    async def main() -> dict[str, list[tuple[str, int, str]]]:
        return {path: [await call(app, path) for _ in range(LIMIT + 1)] for path in PATHS}

    for replies in asyncio.run(main()).values():
        assert replies == [("200", 1, "")] * LIMIT + [("429", 1, "")]


# The plain bucket keeps its books, and its script keeps the same: a baseline that is wrong would flatter us


@pytest.mark.parametrize(
    "steps",
    [
        [(0.0, Take(101, whole=True), 0), (0.0, Take(101, whole=False), 100), (0.0, Take(1, whole=True), 0)],
        [(0.0, Take(100, whole=True), 100), (0.25, Take(5, whole=False), 2), (0.5, Take(3, whole=True), 3)],
        [(0.0, Tell(130), -30), (1.0, Take(1, whole=False), 0), (1.0, Tell(0), -20), (3.5, Take(9, whole=False), 5)],
        # Full is full, and a clock that steps back gives nothing.
        [(0.0, Tell(1), 99), (99.0, Tell(0), 100), (50.0, Tell(60), 40), (99.0, Tell(0), 40)],
    ],
)
def test_the_bucket_keeps_its_books(steps: list[tuple[float, Request, int]]) -> None:
    bucket = PlainBucket(10.0, 100)
    assert [bucket.take(request, at) for at, request, _ in steps] == [answer for _, _, answer in steps]


requests = st.one_of(st.builds(Take, st.integers(1, 60), st.booleans()), st.builds(Tell, st.integers(0, 60)))
# Eighths of a second, now and then backwards, and rates in parts of 2^20: doubles hold all sums, in either unit.
steps = st.lists(st.tuples(st.integers(-2, 20), requests), max_size=30)


@given(st.integers(1, 2**27), st.integers(1, 200), steps)
def test_the_script_is_the_same_bucket(parts: int, burst: int, steps: list[tuple[int, Request]]) -> None:
    quota, lua = Quota(parts / 2**20, burst), Interpreter()
    lua.load("plain", SCRIPT)
    bucket, eighths = PlainBucket(quota.rate, burst), 8 * 1_700_000_000
    for elapsed, request in steps:
        eighths += elapsed
        lua.now = eighths * 125_000 + 1  # the last of sixteen digits
        assert lua.run("plain", arguments(quota, request)) == bucket.take(request, eighths / 8)
        assert float(lua.fields["level"]) == bucket.level


def test_every_server_runs_it(server: Server, prefix: str) -> None:
    slow = Quota(1e-6, 100)  # nothing is refilled while the test runs
    bucket, store = PlainBucket(slow.rate, slow.burst), PlainStore(server.url, prefix, slow)
    requests: list[Request] = [Tell(7), Take(90, True), Take(90, True), Take(2, False), Take(9, False), Tell(11)]
    for request in [*requests, Take(1, whole=False), Take(1, whole=True)]:
        assert store.ask(request) == bucket.take(request, 0.0)
    store.close()
