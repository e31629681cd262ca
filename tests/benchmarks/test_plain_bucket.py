"""The plain bucket keeps its books, and its script keeps the same: a baseline that is wrong would flatter us."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Quota
from benchmarks.rivals import PlainBucket, PlainStore, Request, Take, Tell
from benchmarks.rivals.store import SCRIPT, arguments
from tests.lua.interpreter import Interpreter
from tests.servers import Server


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
