"""Arguments that no face takes are errors where the face is made."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.front import Front
from batchlimit.rules import Rule, RulesError
from tests.integrations.asgi import Hello

RULES = [Rule("all", "1/hour", key="all")]
CHARGED = [Rule("word", "1/hour", key="word", charge=[401])]


def asgi(limiter: str, rules: list[Rule], **options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(Hello(), limiter, rules, **options)


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi])
def test_a_rule_for_messages_has_no_charge(make: Callable[..., Any]) -> None:
    with pytest.raises(RulesError, match="a message has no response to charge by"):
        make("memory://", RULES, messages=CHARGED)
