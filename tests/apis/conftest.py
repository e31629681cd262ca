"""What the tests of both APIs share."""

from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.watchers import Rounds
from tests.apis.keyed import Told, close


@pytest.fixture(params=[KeyedConcurrencyLimiter, AsyncKeyedConcurrencyLimiter], ids=["threads", "asyncio"])
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What makes limiters, which are closed at the end."""
    made: list[Any] = []

    def make(*args: Any, **options: Any) -> Any:
        made.append(request.param(*args, **options))
        return made[-1]

    yield make
    for each in made:
        close(each)


@pytest.fixture
def seen() -> dict[str, Told]:
    """The watcher of each key."""
    return {"repo:1": Told(), "repo:2": Told()}


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is made but by `round_of`."""
    monkeypatch.setattr(Rounds, "start", lambda self: None)
