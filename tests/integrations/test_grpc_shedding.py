"""A gRPC call that is given up during its handler."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import grpc
import pytest

from batchlimit.concurrency import Keyed, Shedding
from batchlimit.concurrency.laws import Gitaly, Settable
from batchlimit.integrations.grpc import check_permit
from tests.integrations.service import KINDS
from tests.integrations.stage import Recording, on_asyncio, threaded
from tests.sync.stage import DEADLINE, until


class Trouble:
    """A watcher that sees trouble when it is told to."""

    name = "trouble"

    def __init__(self) -> None:
        self.event: str | None = None

    def poll(self) -> str | None:
        return self.event


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_given_up_is_told_so(kind: str) -> None:
    """The less important one; what is not sheddable stays."""
    watcher, law = Trouble(), Gitaly(initial=10, minimum=1, maximum=20)
    shedding: dict[str, Any] = {"watchers": [watcher], "every": 0.001, "shedding": Shedding(after=1, share=0.1)}
    terms = {"sheddable": lambda details: dict(details.invocation_metadata).get("sheddable") == "yes"}
    with on_asyncio(law, interceptor=terms, **shedding) as scene, scene.client() as client:
        stays = client.call(kind, "hold")
        scene.gate.meet()
        goes = client.call(kind, "hold", metadata=[("sheddable", "yes")])
        scene.gate.meet()
        watcher.event = "memory"
        assert (goes.code, goes.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        scene.gate.open()
        assert stays.code is grpc.StatusCode.OK
        assert scene.counted == (1, 0, 1)


SHEDDABLE: dict[str, Any] = {"sheddable": lambda details: dict(details.invocation_metadata).get("sheddable") == "yes"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_a_thread_is_given_up_where_it_checks(kind: str) -> None:
    """The handler works, and checks now and then; what is not sheddable stays, though it checks as well."""
    law = Settable(2)
    shedding: dict[str, Any] = {"every": 0.001, "shedding": Shedding(over=2, share=1)}
    with threaded(law, interceptor=SHEDDABLE, **shedding) as scene, scene.client() as client:
        stays = client.call(kind, "work")
        scene.gate.meet()
        goes = client.call(kind, "work", metadata=[("sheddable", "yes")])
        scene.gate.meet()
        law.set_limit(1)
        assert (goes.code, goes.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        scene.gate.open()
        assert stays.code is grpc.StatusCode.OK
        assert scene.counted == (1, 0, 1)
        assert scene.statistics.shed == 1


def test_a_stream_of_a_thread_is_given_up_at_its_next_response() -> None:
    law = Settable(1)
    with (
        threaded(law, interceptor=SHEDDABLE, every=0.001, shedding=Shedding(over=1)) as scene,
        scene.client() as client,
    ):
        held = scene.limiter.acquire()
        law.set_limit(2)
        flood = client.call("unary_stream", "flood", metadata=[("sheddable", "yes")])
        assert flood.first() == "first"
        law.set_limit(1)
        assert (flood.code, flood.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        held.success()
        assert scene.counted == (1, 0, 1)


def test_a_stream_of_requests_is_given_up_at_the_next_one() -> None:
    law = Settable(1)
    told = Event()

    def requests() -> Iterator[str]:
        told.wait(DEADLINE)
        yield "more"

    with (
        threaded(law, interceptor=SHEDDABLE, every=0.001, shedding=Shedding(over=1)) as scene,
        scene.client() as client,
    ):
        held = scene.limiter.acquire()
        law.set_limit(2)
        call = client.call("stream_unary", "a", later=requests(), metadata=[("sheddable", "yes")])
        until(lambda: scene.statistics.in_flight == 2)
        law.set_limit(1)
        until(lambda: scene.statistics.shed == 1)
        told.set()
        assert (call.code, call.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        held.success()
        assert scene.counted == (1, 0, 1)


def test_nobody_is_told_to_give_up_outside_of_a_call() -> None:
    check_permit()


@pytest.mark.parametrize(("served", "text"), [(on_asyncio, "hold"), (threaded, "work")], ids=["asyncio", "threads"])
def test_a_call_at_several_keys_is_given_up_where_one_of_them_is_above_its_limit(served: Any, text: str) -> None:
    law = Settable(2)
    limits = {"repo:*": Keyed(lambda: law, shedding=Shedding(over=2, share=1)), "call:*": 9}
    terms = SHEDDABLE | {"key": lambda details: [f"repo:{dict(details.invocation_metadata)['repo']}", "call:any"]}
    with served(Recording(1), interceptor=terms, keyed=limits, every=0.001) as scene, scene.client() as client:
        stays = client.call("unary_unary", text, metadata=[("repo", "1")])
        scene.gate.meet()
        goes = client.call("unary_unary", text, metadata=[("repo", "1"), ("sheddable", "yes")])
        scene.gate.meet()
        law.set_limit(1)
        assert (goes.code, goes.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        scene.gate.open()
        assert stays.code is grpc.StatusCode.OK
        until(lambda: scene.limiter.busiest() == [])
        counted = scene.limiter.statistics().patterns
        assert {name: (each.shed, each.ignored, each.succeeded) for name, each in counted.items()} == {
            "repo:*": (1, 1, 1),
            "call:*": (0, 1, 1),
        }
