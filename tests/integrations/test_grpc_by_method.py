"""One interceptor with a limit for each method, on servers of both APIs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.integrations.grpc import (
    AsyncByMethod,
    AsyncConcurrencyInterceptor,
    ByMethod,
    ConcurrencyInterceptor,
    by_metadata,
)
from batchlimit.integrations.grpc.concurrency import _MOST
from batchlimit.laws import Fixed
from tests.integrations.gate import Gate
from tests.integrations.service import KINDS, AsyncService, Service
from tests.integrations.stage import Client, server


class Threads:
    """What a threaded server has."""

    limiter, keyed = ConcurrencyLimiter, KeyedConcurrencyLimiter
    intercept, by_method, service = ConcurrencyInterceptor, ByMethod, Service


class Tasks:
    """What a server on asyncio has."""

    limiter, keyed = AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter
    intercept, by_method, service = AsyncConcurrencyInterceptor, AsyncByMethod, AsyncService


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Any:
    return request.param


@contextmanager
def client(api: Any, interceptors: dict[str, Any], gate: Gate) -> Iterator[Client]:
    serving = server(api is Tasks, api.service(gate), api.by_method(interceptors))
    with serving as address, grpc.insecure_channel(address) as channel:
        try:
            yield Client(channel)
        finally:
            gate.open()


@pytest.mark.parametrize("kind", KINDS)
def test_each_method_has_the_limit_of_its_first_entry(api: Any, kind: str) -> None:
    gate, one, many = Gate(), api.limiter(Fixed(1)), api.limiter(Fixed(2))
    limits = {"*": many, "/test.Pay/*": one, "/test.Health/*": None}
    with client(api, limits, gate) as calls:
        held = [calls.call(kind, "hold", service=each) for each in ("test.Pay", "test.Other", "test.Other")]
        gate.meet(3)
        codes = [calls.call(kind, "a", service=each).code for each in ("test.Pay", "test.Other", "test.Health")]
        refused = grpc.StatusCode.RESOURCE_EXHAUSTED
        assert codes == [refused, refused, grpc.StatusCode.OK]
        assert (one.statistics().in_flight, many.statistics().in_flight) == (1, 2)
        gate.open()
        assert [each.code for each in held] == [grpc.StatusCode.OK] * 3


def test_a_method_that_no_entry_names_passes(api: Any) -> None:
    gate = Gate()
    limiter = api.limiter(Fixed(1))
    with client(api, {"/test.Pay/unary_unary": limiter}, gate) as calls:
        assert calls.call("unary_unary", "a").answers() == ["a"]
        assert calls.call("unary_unary", "a", service="test.Pay").answers() == ["a"]
        assert limiter.statistics().admitted == 1


def test_a_method_may_have_limits_by_key_and_another_one_a_limit_for_all(api: Any) -> None:
    gate = Gate()
    packs = api.intercept(api.keyed({"*": 1}), key=by_metadata("repo"))
    with client(api, {"/git.Packs/*": packs, "*": api.limiter(Fixed(5))}, gate) as calls:
        held = calls.call("unary_unary", "hold", service="git.Packs", metadata=[("repo", "a")])
        gate.meet()
        seen = [
            calls.call("unary_unary", "a", service=service, metadata=[("repo", repo)]).code
            for service, repo in (("git.Packs", "a"), ("git.Packs", "b"), ("git.Refs", "a"))
        ]
        assert seen == [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK, grpc.StatusCode.OK]
        gate.open()
        assert held.code is grpc.StatusCode.OK


def test_names_of_clients_fill_no_memory(api: Any) -> None:
    interceptor = api.by_method({"/a/*": None, "*": api.limiter(Fixed(5))})
    for number in range(_MOST + 100):
        assert interceptor._of(f"/b/{number}") is not None
        assert interceptor._of(f"/a/{number}") == (None,)
    assert interceptor._of.cache_info().currsize == _MOST


@pytest.mark.parametrize("given", [{}, None, [1]])
def test_entries_come_as_a_dict(api: Any, given: Any) -> None:
    with pytest.raises(TypeError, match="interceptors must be like"):
        api.by_method(given)


def test_an_entry_is_a_limiter_or_an_interceptor(api: Any) -> None:
    with pytest.raises(TypeError, match=r"'/a/\*' needs a \w+, an interceptor, or None"):
        api.by_method({"/a/*": api.keyed({"*": 1})})
