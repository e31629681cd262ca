"""Interceptors on real gRPC servers: who is let in, what those are told that are not, and how long a permit is held."""

import grpc
import pytest

from tests.integrations.service import KINDS
from tests.integrations.stage import Recording, SetUp, threaded

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_let_in_is_served_as_without_a_limiter(stage: SetUp, kind: str) -> None:
    served = {
        "unary_unary": ["a"],
        "unary_stream": ["first", "a"],
        "stream_unary": ["a b"],
        "stream_stream": ["a", "b"],
    }
    law = Recording(1)
    with stage(law) as scene, scene.client() as client:
        assert client.call(kind, "a", "b").answers() == served[kind]
    assert [(sample.operation, sample.dropped) for sample in law.samples] == [(f"/test.Echo/{kind}", False)]


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_refused_is_told_why_and_when_to_come_back(stage: SetUp, kind: str) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call("unary_unary", "that one may know how long a call takes").code is OK
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        refused = client.call(kind, "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "limit")
        assert int(refused.told["grpc-retry-pushback-ms"]) >= 1
        assert "1 calls are under way, the limit is 1" in refused.details
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_a_refusal_takes_no_worker() -> None:
    """Every worker is busy, and stays so until all refusals have arrived."""
    with threaded(Recording(2), workers=2) as scene, scene.client() as client:
        held = [client.call("unary_unary", "hold") for _ in range(2)]
        scene.gate.meet(2)
        assert [client.call(kind, "a").code for kind in KINDS] == [EXHAUSTED] * 4
        scene.gate.open()
        assert [call.answers() for call in held] == [["hold"]] * 2
