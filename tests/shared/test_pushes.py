"""The listener reads pushes, and subscribes again after its subscription was lost or is silent."""

import logging
import math
import queue
import threading
from contextlib import closing
from random import uniform
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit.bucket.slot_table import SlotPush
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.shared import listener as pushes_module
from batchlimit.shared.listener import Listener
from batchlimit.stores import RedisStore
from batchlimit.stores.client import sentinel
from tests.nodes import Node, await_fact
from tests.relay import Relay
from tests.servers import Server, valkey_binary
from tests.topologies import named

PUSH = SlotPush("a.1", 1, 2, -1)


class Scripted:
    """A subscription that does what a test says: opens or not, and reads pushes or fails."""

    def __init__(self, events: "queue.Queue[Any]", log: "queue.Queue[str]") -> None:
        self._events, self._log = events, log

    def open(self) -> None:
        self._log.put("open")
        if (event := self._events.get()) is not None:
            raise event

    def read(self, seconds: float) -> Any:
        if seconds != 1.0:
            self._log.put("a listener rests while nothing comes")
        event = self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        self._log.put("close")


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes_module, "_PAUSE", (0.0, 0.0))


class Played:
    """A listener whose subscriptions do what a test says, until it hears of the limit "last"."""

    def __init__(self, *events: Any) -> None:
        self._events: queue.Queue[Any] = queue.Queue()
        self._log: queue.Queue[str] = queue.Queue()
        self._end = threading.Event()
        for event in (*events, ("last", PUSH)):
            self._events.put(event)
        subscribe = lambda: Scripted(self._events, self._log)  # noqa: E731
        self._listener = Listener(subscribe, self._receive, lambda: self._log.put("back"), self._knock)

    def _receive(self, name: str, push: SlotPush) -> None:
        assert push == PUSH
        self._log.put(name)
        if name == "last":
            self._listener.stop()
            self._end.set()

    def _knock(self) -> bool:
        self._log.put("knock")
        return True

    def told(self) -> list[str]:
        """What happened."""
        self._listener.start()
        assert self._end.wait(100)
        self._listener.join(100)
        return [self._log.get() for _ in range(self._log.qsize())]


REFUSED, OPENED, SILENCE = ConnectionError("refused"), None, None


@pytest.mark.usefixtures("no_pause")
def test_a_lost_subscription_is_made_again_and_everybody_looks_after_each() -> None:
    played = Played(REFUSED, OPENED, ("first", PUSH), ConnectionError("lost"), OPENED)
    assert played.told() == ["open", "close", "open", "back", "first", "close", "open", "back", "last", "close"]


@pytest.mark.usefixtures("no_pause")
def test_a_subscription_that_does_not_hear_what_is_published_to_it_is_made_again() -> None:
    played = Played(OPENED, SILENCE, SILENCE, OPENED)
    assert played.told() == ["open", "back", "knock", "close", "open", "back", "last", "close"]


def test_a_subscription_that_hears_what_is_published_to_it_stays() -> None:
    played = Played(OPENED, SILENCE, ("", PUSH), SILENCE, ("", PUSH))
    assert played.told() == ["open", "back", "knock", "", "knock", "", "last", "close"]


def test_a_subscription_that_lasted_is_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes_module, "_SHORT", 0.0)
    monkeypatch.setattr(pushes_module, "_PAUSE", (1000.0, 1000.0))
    assert Played(OPENED, ConnectionError("lost"), OPENED).told()[-4:] == ["open", "back", "last", "close"]


def test_the_log_tells_of_a_failure_after_a_minute_without_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, instants, pauses = 0.0, iter([0.0, 59.0, 119.0]), list[tuple[float, ...]]()
    mine = threading.get_ident()

    def subscribe() -> None:
        nonlocal now
        now = next(instants, math.inf)
        if now == math.inf:
            listener.stop()
        raise ConnectionError

    def shortest(*both: float) -> float:
        if threading.get_ident() != mine:  # a listener that another test left
            return uniform(*both)
        pauses.append(both)
        return 0.0

    listener = Listener(subscribe, lambda name, push: None, lambda: None, lambda: True)
    monkeypatch.setattr(pushes_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(pushes_module, "uniform", shortest)
    with caplog.at_level(logging.DEBUG, "batchlimit"):
        listener.run()
    assert [each.levelname for each in caplog.records] == ["INFO", "DEBUG", "INFO"]
    assert pauses == [(0.5, 1.0)], "after those that had failed at once"


def listeners(server: Server | Node, prefix: str, limiter: SharedConcurrencyLimiter) -> int:
    """How many connections listen for a limiter, as the server knows."""
    with server.client() as client:
        ((_, count),) = client.pubsub_numsub(f"{prefix}:instance:{limiter._engine._instance}")
    return int(count)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes_module, "_READ", 0.05)
    monkeypatch.setattr(sentinel, "SPACING", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_subscription_that_a_network_forgot_is_made_again(valkey: Server, prefix: str) -> None:
    store = RedisStore.from_url(valkey.url, prefix=prefix)
    with Relay(valkey.url, 0.0) as relay, closing(store), closing(RedisStore.from_url(relay.url)) as distant:
        store._pubsub = distant._pubsub  # type: ignore[method-assign]
        with SharedConcurrencyLimiter(store, {"gpu": 1}, deadline=30.0) as limiter, limiter.acquire("gpu"):
            await_fact(lambda: listeners(valkey, prefix, limiter) == 1, "it listens")
            relay.strand()
            await_fact(lambda: listeners(valkey, prefix, limiter) > 1, "it listens again")


@pytest.mark.usefixtures("impatient")
def test_a_subscription_follows_the_primary(prefix: str) -> None:
    with (
        named(valkey_binary()) as found,
        SharedConcurrencyLimiter.from_url(found.url, {"gpu": 1}, prefix=prefix, deadline=30.0) as limiter,
        limiter.acquire("gpu"),
    ):
        old, new = found.nodes
        await_fact(lambda: listeners(old, prefix, limiter) == 1, "it listens")
        found.name(new)
        await_fact(lambda: listeners(new, prefix, limiter) == 1, "it listens at the new primary")


@pytest.mark.usefixtures("impatient")
def test_a_limiter_that_is_closed_listens_no_more_though_its_store_stays_open(valkey: Server, prefix: str) -> None:
    with closing(RedisStore.from_url(valkey.url, prefix=prefix)) as store:
        with SharedConcurrencyLimiter(store, {"gpu": 1}, deadline=30.0) as limiter, limiter.acquire("gpu"):
            await_fact(lambda: listeners(valkey, prefix, limiter) == 1, "it listens")
        await_fact(lambda: listeners(valkey, prefix, limiter) == 0, "it listens no more")
