"""Callers with a priority pass those that wait without one, in both APIs."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.nodes import await_fact

KEY = "api.example.com"


@pytest.fixture
def limiter(api: Api) -> Iterator[Any]:
    with api(MemoryStore(), {KEY: "50/s burst 5", "*": "1000/s"}) as limiter:
        yield limiter


CALLS: list[Callable[[Any, int], object]] = [
    lambda limiter, priority: limiter.acquire(KEY, priority=priority),
    lambda limiter, priority: limiter.acquire_all({KEY: 1, "other": 1}, priority=priority),
    lambda limiter, priority: limiter.reserve(KEY, 1, priority=priority).__enter__(),
    lambda limiter, priority: limiter.reserve({KEY: 1, "other": 1}, priority=priority).__enter__(),
]
NAMES = ["acquire", "acquire_all", "reserve", "reserve several"]


@pytest.mark.parametrize("call", CALLS, ids=NAMES)
def test_an_urgent_caller_is_served_before_those_that_came_earlier(limiter: Any, call: Callable[..., object]) -> None:
    order: list[str] = []

    def come(name: str, work: Callable[[], object]) -> threading.Thread:
        waiting = limiter.statistics().waiting

        def run() -> None:
            work()
            order.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        await_fact(lambda: limiter.statistics().waiting == waiting + 1, "it waits")
        return thread

    limiter.pause(KEY, 3600)
    threads = [come("batch", lambda: limiter.acquire(KEY)) for _ in range(12)]
    threads.append(come("urgent", lambda: call(limiter, 10)))
    limiter.resume(KEY)
    for each in threads:
        each.join(100)
    assert order.index("urgent") < 8, "one grant at the most wakes earlier ones with it"


@pytest.mark.parametrize("call", CALLS, ids=NAMES)
@pytest.mark.parametrize(
    ("priority", "error"), [(0, ValueError), (101, ValueError), (True, TypeError), ("1", TypeError)]
)
def test_a_priority_is_a_whole_number_from_1_to_100(
    limiter: Any, call: Callable[..., object], priority: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="priority must be"):
        call(limiter, priority)
    assert limiter.statistics().admitted == 0
