"""Arguments that no face takes are errors where the face is made."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations import grpc
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware, RateLimitMiddleware
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware as WSGIConcurrency
from batchlimit.integrations.wsgi import RateLimitMiddleware as WSGIMiddleware
from batchlimit.laws import Fixed
from batchlimit.rules import Rule, RulesError
from tests.integrations.asgi import Hello

RULES = [Rule("all", "1/hour", key="all")]


def asgi(limiter: str, rules: list[Rule], **options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(Hello(), limiter, rules, **options)


def wsgi(limiter: str, rules: list[Rule], **options: Any) -> WSGIMiddleware:
    return WSGIMiddleware(lambda _environ, _start_response: [], limiter, rules, **options)


FRONTS: Any = (Front, AsyncFront, asgi)
CHARGED = [Rule("word", "1/hour", key="word", charge=[401])]
WRONG = [
    (FRONTS, {"messages": CHARGED}, RulesError, "a message has no response to charge by"),
    (FRONTS, {"proxies": ["10.0.0.0/8"]}, TypeError, r"proxies is like TrustedProxies\(.*not \['10\.0\.0\.0/8'\]"),
    ((*FRONTS, wsgi), {"heders": "off"}, TypeError, "there is no option 'heders': did you mean 'headers'"),
    ((*FRONTS, wsgi), {"identity": len}, TypeError, "there is no option 'identity': did you mean 'identify'"),
    ([asgi], {"exempt": ["/hello"]}, TypeError, r"no option 'exempt': write Rules\(..., exempt=...\)"),
    ([asgi], {"on_failure": "open"}, TypeError, r"no option 'on_failure': write Rule\(..., on_failure=...\)"),
    ([asgi], {"prefix": "shop"}, TypeError, r"no option 'prefix': write AsyncRateLimiter\(..., prefix=...\)"),
    ([wsgi], {"prefix": "shop"}, TypeError, r"no option 'prefix': write RateLimiter\(..., prefix=...\)"),
    ([asgi], {"identify": {"user": "ann"}}, TypeError, "identify is a function that returns values for keys, not "),
    ([asgi], {"enabled": "0"}, TypeError, "enabled is True or False, not '0'"),
    ([asgi], {"limit_preflight": "0"}, TypeError, "limit_preflight is True or False, not '0'"),
    ([asgi], {"limiter": 3}, TypeError, "a URL or a function"),
    ([asgi], {"limiter": "rediss:/nowhere"}, ValueError, "missing '//' after rediss"),
    ([asgi], {"headers": "draft-12"}, ValueError, "draft-11"),
    ([asgi], {"ipv6_prefix": 0}, ValueError, "1 to 128 bits"),
    ([asgi], {"unidentified": "perhaps"}, ValueError, "refuse"),
    ([asgi], {"messages": RULES}, ValueError, "two rules have this name"),
    ([asgi, wsgi], {"concurrency": object()}, TypeError, r"is like ConcurrencyLimit\(limiter=.*not <object"),
]


@pytest.mark.parametrize(
    ("make", "options", "error", "message"), [(make, *row) for makes, *row in WRONG for make in makes]
)
def test_what_no_face_takes_is_told_where_it_is_made(make: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(**{"limiter": "memory://", "rules": RULES, **options})


@pytest.mark.parametrize("make", [Front, AsyncFront, asgi])
def test_without_any_rule_nothing_would_be_limited(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="no rules, so nothing would be limited: add one, as Rule"):
        make("memory://", [])
    make("memory://", [], messages=RULES)


THREADED = [
    lambda limiter: WSGIConcurrency(lambda _environ, _start: [], limiter),
    grpc.ConcurrencyInterceptor,
    grpc.ConcurrencyClientInterceptor,
]
ASYNC = [
    lambda limiter: ConcurrencyLimitMiddleware(Hello(), limiter),
    grpc.AsyncConcurrencyInterceptor,
    grpc.AsyncConcurrencyClient,
]


KINDS = {ConcurrencyLimiter: AsyncConcurrencyLimiter, AsyncConcurrencyLimiter: ConcurrencyLimiter}
FACES: Any = [*((face, ConcurrencyLimiter) for face in THREADED), *((face, AsyncConcurrencyLimiter) for face in ASYNC)]


@pytest.mark.parametrize(("face", "kind"), FACES)
def test_a_face_takes_a_limiter_of_its_own_api(face: Callable[[Any], Any], kind: Any) -> None:
    other = KINDS[kind]
    for limiter in (other(Fixed(1)), 20):
        with pytest.raises(TypeError, match=rf"limiter must be one of {kind.__name__}, .*not (<{other.__name__}|20)"):
            face(limiter)
