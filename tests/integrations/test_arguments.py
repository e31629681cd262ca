"""Arguments that no face takes are errors where the face is made."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.wsgi import RateLimitMiddleware as WSGIMiddleware
from batchlimit.rules import Rule, RulesError
from tests.integrations.asgi import Hello

RULES = [Rule("all", "1/hour", key="all")]
CHARGED = [Rule("word", "1/hour", key="word", charge=[401])]


def asgi(limiter: str, rules: list[Rule], **options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(Hello(), limiter, rules, **options)


def wsgi(limiter: str, rules: list[Rule], **options: Any) -> WSGIMiddleware:
    return WSGIMiddleware(lambda _environ, _start_response: [], limiter, rules, **options)


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi])
def test_a_rule_for_messages_has_no_charge(make: Callable[..., Any]) -> None:
    with pytest.raises(RulesError, match="a message has no response to charge by"):
        make("memory://", RULES, messages=CHARGED)


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi])
def test_networks_of_proxies_come_in_trusted_proxies(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"proxies is like TrustedProxies\(.*not \['10\.0\.0\.0/8'\]"):
        make("memory://", RULES, proxies=["10.0.0.0/8"])


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi])
def test_without_any_rule_nothing_would_be_limited(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="no rules, so nothing would be limited: add one, as Rule"):
        make("memory://", [])
    make("memory://", [], messages=RULES)


@pytest.mark.parametrize("make", [asgi, wsgi])
def test_a_limiter_beside_rules_comes_in_a_concurrency_limit(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"concurrency is like ConcurrencyLimit\(limiter=.*not <object"):
        make("memory://", RULES, concurrency=object())


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi, wsgi])
def test_an_option_with_a_typo_is_told_which_one_is_meant(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="there is no option 'heders': did you mean 'headers'"):
        make("memory://", RULES, heders="off")
