"""A gRPC server on either front, each in turn."""

import pytest

from batchlimit.integrations import permits
from batchlimit.integrations.enforcement import no_rules
from batchlimit.integrations.faults import Faults
from tests.integrations.stage import SetUp, on_asyncio, threaded


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of this process has not been told of anything less than a minute ago, by another test."""
    for module in (no_rules, permits):
        monkeypatch.setattr(module, "_faults", Faults())


@pytest.fixture(autouse=True)
def _patient(far_away: None) -> None:
    """Faces run on the clock of the machine: each limiter leases for seconds here, so that no stall matters."""


@pytest.fixture(params=[threaded, on_asyncio], ids=["threads", "asyncio"])
def stage(request: pytest.FixtureRequest) -> SetUp:
    """What sets up a stage: of a law, with options for the limiter, and of those for the interceptor."""
    made: SetUp = request.param
    return made
