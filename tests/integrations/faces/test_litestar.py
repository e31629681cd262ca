"""What Litestar alone has: guards, looked up when the application starts; the middleware before its router."""

import pytest
from litestar import Litestar, get
from litestar.testing import TestClient

from batchlimit.integrations.litestar import add_rate_limits, limited
from batchlimit.rules import Rule, RulesError

RULES = [Rule("nowhere", "1/hour", key="nowhere", match="/nowhere"), Rule("once", "1/hour", key="once", match=None)]


def application(key: str) -> Litestar:
    @get("/x", guards=[limited(key)])
    async def handler() -> str:
        return "x"

    app = Litestar([handler], logging_config=None)  # else it takes the handlers of other tests away
    add_rate_limits(app, "memory://", RULES)
    return app


def test_a_path_that_nobody_serves_is_limited_too() -> None:
    with TestClient(application("once")) as it:
        assert [it.get("/nowhere").status_code for _ in range(2)] == [404, 429]


def test_a_key_that_no_rule_has_ends_the_start() -> None:
    with pytest.raises(BaseExceptionGroup) as caught, TestClient(application("one")):
        pass
    assert caught.group_contains(RulesError, match="did you mean 'once'")
