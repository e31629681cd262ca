"""Calls of a threaded gRPC server that wait in the limiter's queue: none of them has a thread meanwhile."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Full
from typing import Any

import grpc
import grpc._server
import pytest

from batchlimit import ConcurrencyLimiter, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.integrations.grpc import ConcurrencyInterceptor
from batchlimit.laws import Fixed
from batchlimit.shared import SharedConcurrencyLimiter
from tests.integrations.gate import Gate
from tests.integrations.service import KINDS, SERVED, Service
from tests.integrations.stage import Client, Stage, server
from tests.sync.stage import until

PATIENT = Queue(100, max_wait=None)


@contextmanager
def queueing(limiter: Any, *, workers: int = 1, **interceptor: Any) -> Iterator[Stage]:
    """A server with few workers, before which calls wait for the limiter."""
    gate = Gate()
    with limiter, ThreadPoolExecutor(workers) as pool:
        intercept = ConcurrencyInterceptor(limiter, workers=pool, **interceptor)
        with server(False, Service(gate), intercept, workers=pool) as address:
            try:
                yield Stage(None, limiter, intercept, gate, address, lambda do, *args: do(*args))
            finally:
                gate.open()


def waiting(scene: Stage, many: int) -> None:
    until(lambda: scene.statistics.waiting == many)


@contextmanager
def full(queue: Queue = PATIENT, **interceptor: Any) -> Iterator[tuple[Stage, Client, Any]]:
    """A server whose one place is taken, a client of it, and the permit."""
    limiter = ConcurrencyLimiter(Fixed(1), queue=queue)
    with queueing(limiter, **interceptor) as scene, scene.client() as client:
        yield scene, client, limiter.acquire()


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_waits_for_its_place_and_is_served_then(kind: str) -> None:
    with full() as (scene, client, held):
        call = client.call(kind, "a", "b")
        waiting(scene, 1)
        held.success()
        assert call.answers() == SERVED[kind]
        assert scene.counted == (2, 0, 0)


def test_calls_that_wait_keep_no_worker_from_others_nor_the_thread_that_takes_in_calls() -> None:
    """One worker: another method, with a place of its own, is served while fifty calls wait."""
    limiter = KeyedConcurrencyLimiter({"slow": Keyed(1, queue=PATIENT), "*": 10})

    def key(details: grpc.HandlerCallDetails) -> str:
        return "slow" if "Slow" in details.method else "other"

    with queueing(limiter, key=key) as scene, scene.client() as client:
        held = limiter.acquire("slow")
        assert client.call("unary_unary", "b").answers() == ["b"]  # the worker runs from now on
        slow = [client.call("unary_unary", "a", service="test.Slow") for _ in range(50)]
        until(lambda: limiter.statistics().patterns["slow"].waiting == 50)
        assert client.call("unary_unary", "b").answers() == ["b"]
        held.success()
        assert [each.answers() for each in slow] == [["a"]] * 50


@pytest.mark.parametrize(("queue", "timeout"), [(Queue(9, max_wait=0.001), None), (PATIENT, 0.001)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_waited_in_vain_is_told_so(kind: str, queue: Queue, timeout: float | None) -> None:
    with full(queue, timeout=timeout) as (scene, client, held):
        call = client.call(kind, "a")
        assert (call.code, call.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue_timeout")
        held.success()
        assert scene.counted == (1, 0, 0)


def test_a_call_that_a_more_important_one_displaces_is_told_so() -> None:
    with full(Queue(1, max_wait=None), priority=lambda details: len(details.method)) as (scene, client, held):
        low = client.call("unary_unary", "low")
        waiting(scene, 1)
        high = client.call("unary_unary", "high", service="test.Important")
        assert (low.code, low.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue_full")
        held.success()
        assert high.answers() == ["high"]


def test_a_client_that_went_away_leaves_no_place_taken() -> None:
    with full() as (scene, client, held):
        gone, stays = client.call("unary_unary", "a"), client.call("unary_unary", "b")
        waiting(scene, 2)
        gone.cancel()
        held.success()
        assert stays.answers() == ["b"]
        scene.rest()


def test_a_server_that_stops_leaves_no_place_taken() -> None:
    with full() as (scene, client, held):
        calls = [client.call("unary_unary", "a") for _ in range(3)]
        waiting(scene, 3)
    held.success()
    scene.rest()
    assert all(each.code is not grpc.StatusCode.OK for each in calls)


def test_a_pool_that_is_full_leaves_no_place_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*job: object) -> None:
        raise Full

    with full() as (scene, client, held):
        call = client.call("unary_unary", "a")
        waiting(scene, 1)
        monkeypatch.setattr(scene._intercept._workers, "submit", is_full)
        held.success()
        assert call.code is grpc.StatusCode.UNAVAILABLE
        scene.rest()


def test_an_unknown_method_takes_no_place_when_its_turn_comes() -> None:
    with full() as (scene, client, held):
        assert client.call("unary_unary", "a", to="nothing").code is grpc.StatusCode.UNIMPLEMENTED
        waiting(scene, 1)
        held.success()
        assert scene.counted == (1, 0, 1)


def test_a_call_of_several_keys_does_not_wait() -> None:
    limiter = KeyedConcurrencyLimiter({"*": Keyed(1, queue=PATIENT)})
    with queueing(limiter, key=lambda details: ["a", "b"]) as scene, scene.client() as client:
        held = limiter.acquire("b")
        call = client.call("unary_unary", "a")
        assert (call.code, call.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit")
        held.success()


def test_a_grpcio_that_looks_for_no_pools_lets_calls_wait_in_their_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc._server, "_select_thread_pool_for_behavior", lambda behavior, pool: pool)
    with full() as (scene, client, held):
        call = client.call("unary_unary", "a")
        waiting(scene, 1)
        held.success()
        assert call.answers() == ["a"]


def test_a_shared_limiter_has_no_queue_of_this_kind() -> None:
    pool = ThreadPoolExecutor(1)
    with (
        SharedConcurrencyLimiter.from_url("memory://", {"*": 1}) as limiter,
        pytest.raises(TypeError, match="workers= is for limiters of this process"),
    ):
        ConcurrencyInterceptor(limiter, key=lambda details: "a", workers=pool)
