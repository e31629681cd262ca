"""Urgent requests pass those that came earlier, whichever library sends them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchlimit import Queue
from batchlimit.concurrency import Keyed
from tests.awaiting import awaited
from tests.integrations.outgoing.clients import Client
from tests.integrations.outgoing.upstream import Said, Upstream
from tests.nodes import await_fact

KEY = "127.0.0.1"
BATCH = 12


def by_path(request: Any) -> int:
    return 10 if "urgent" in str(request.url) else 1


@contextmanager
def all_wait(client: Client, server: Upstream, waiting: Callable[[], int]) -> Iterator[None]:
    """Twelve requests without a priority wait, and a later one that is urgent; they have come when it ends."""

    def come(path: str) -> threading.Thread:
        thread, before = threading.Thread(target=client.get, args=[server.url + path]), waiting()
        thread.start()
        await_fact(lambda: waiting() == before + 1, "it waits")
        return thread

    threads = [come("/batch") for _ in range(BATCH)] + [come("/urgent")]
    yield
    for each in threads:
        each.join(100)


def place_of_urgent(server: Upstream) -> int:
    return next(place for place, (_, path) in enumerate(server.asked) if "urgent" in path)


def test_an_urgent_request_is_sent_before_those_that_wait_for_tokens(
    make: Callable[..., Client], server: Upstream
) -> None:
    client = make(quota="1/hour burst 20", wait=None, priority=by_path)
    call = awaited if client.is_async else lambda function, *args: function(*args)
    call(client.rates.acquire, KEY, 20)
    with all_wait(client, server, lambda: client.rates.statistics().waiting):
        call(client.rates.refund, KEY, 3)
        await_fact(lambda: len(server.asked) == 3, "three have tokens")
        assert sum("urgent" in path for _, path in server.asked) == 1
        call(client.rates.refund, KEY, BATCH - 2)


def test_so_it_is_before_those_that_wait_for_a_place(make: Callable[..., Client], server: Upstream) -> None:
    client, held = (
        make({"*": Keyed(1, queue=Queue(100, max_wait=None))}, wait=None, priority=by_path),
        threading.Event(),
    )
    server.says = lambda: Said() if held.wait(100) else Said(500)
    first = threading.Thread(target=client.get, args=[server.url])
    first.start()
    await_fact(lambda: len(server.asked) == 1, "the first is under way")
    with all_wait(client, server, lambda: client.concurrency.statistics().patterns["*"].waiting):
        held.set()
    first.join(100)
    assert place_of_urgent(server) <= 2, "every eighth place goes to who waited longest"


def test_a_limit_of_the_fleet_takes_a_priority_too(make: Callable[..., Client], server: Upstream) -> None:
    client = make(shared={"*": 1}, priority=50)
    assert client.get(server.url) == (200, b"fine")


def test_a_function_that_returns_no_priority_is_told(make: Callable[..., Client], server: Upstream) -> None:
    with pytest.raises(ValueError, match="priority must be from 1 to 100, not 101"):
        make(priority=lambda request: 101).open(server.url)
    assert server.asked == []
