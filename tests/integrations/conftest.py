"""A gRPC server and an enforcer on either front, each in turn."""

from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit.batching import FixedBatch
from batchlimit.integrations import permits
from batchlimit.integrations.counters import Faults
from batchlimit.integrations.enforcement import outcome
from batchlimit.rules import Rule
from tests.integrations.enforcers import Make, Twin
from tests.integrations.stage import SetUp, on_asyncio, threaded
from tests.sync.stage import Clock


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of this process has not been told of anything less than a minute ago, by another test."""
    for module in (outcome, permits):
        monkeypatch.setattr(module, "_faults", Faults())


@pytest.fixture(autouse=True)
def _patient(far_away: None) -> None:
    """Faces run on the clock of the machine: each limiter leases for seconds here, so that no stall matters."""


@pytest.fixture(params=[threaded, on_asyncio], ids=["threads", "asyncio"])
def stage(request: pytest.FixtureRequest) -> SetUp:
    """What sets up a stage: of a law, with options for the limiter, and of those for the interceptor."""
    made: SetUp = request.param
    return made


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Whether the API is that of tasks."""
    return bool(request.param)


@pytest.fixture
def make(asynchronous: bool, without_refresher: None) -> Iterator[Make]:
    """What makes an enforcer of rules, on a store of its own, with options."""
    made: list[Twin] = []

    def of(*rules: Rule, **options: Any) -> Twin:
        made.append(Twin(asynchronous, rules, Clock(), sizer=FixedBatch(1), **options))
        return made[-1]

    yield of
    for twin in made:
        twin.store.away.clear()
        twin.close()
