"""Faces that ask a concurrency limiter: one of the other API, or something else, is an error where the face is made."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations import asgi, wsgi
from batchlimit.integrations.grpc import (
    AsyncConcurrencyClient,
    AsyncConcurrencyInterceptor,
    ConcurrencyClientInterceptor,
    ConcurrencyInterceptor,
)
from batchlimit.laws import Fixed

THREADED = [
    lambda limiter: wsgi.ConcurrencyLimitMiddleware(lambda _environ, _start: [], limiter),
    ConcurrencyInterceptor,
    ConcurrencyClientInterceptor,
]
ASYNC = [
    lambda limiter: asgi.ConcurrencyLimitMiddleware(_app, limiter),
    AsyncConcurrencyInterceptor,
    AsyncConcurrencyClient,
]


async def _app(scope: Any, receive: Any, send: Any) -> None: ...


@pytest.mark.parametrize("face", THREADED)
@pytest.mark.parametrize("limiter", [AsyncConcurrencyLimiter(Fixed(1)), 20])
def test_a_face_for_threads_takes_a_limiter_for_threads(face: Callable[[Any], Any], limiter: Any) -> None:
    with pytest.raises(TypeError, match=r"limiter must be one of ConcurrencyLimiter, .*not (<AsyncC|20)"):
        face(limiter)


@pytest.mark.parametrize("face", ASYNC)
@pytest.mark.parametrize("limiter", [ConcurrencyLimiter(Fixed(1)), 20])
def test_a_face_on_asyncio_takes_a_limiter_for_asyncio(face: Callable[[Any], Any], limiter: Any) -> None:
    with pytest.raises(TypeError, match=r"limiter must be one of AsyncConcurrencyLimiter, .*not (<C|20)"):
        face(limiter)
