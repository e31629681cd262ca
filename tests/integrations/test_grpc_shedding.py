"""A gRPC call that is given up during its handler."""

from typing import Any

import grpc
import pytest

from batchlimit.concurrency import Shedding
from batchlimit.concurrency.laws import Gitaly
from tests.integrations.service import KINDS
from tests.integrations.stage import on_asyncio


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
