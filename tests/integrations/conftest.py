"""A gRPC server on either front, each in turn."""

import pytest

from tests.integrations.stage import SetUp, on_asyncio, threaded


@pytest.fixture(params=[threaded, on_asyncio], ids=["threads", "asyncio"])
def stage(request: pytest.FixtureRequest) -> SetUp:
    """What sets up a stage: of a law, with options for the limiter, and of those for the interceptor."""
    made: SetUp = request.param
    return made
