"""What a limiter learns from the way in which a gRPC call ended."""

import grpc
import pytest

from batchlimit.concurrency import Outcome
from batchlimit.integrations.grpc import outcome_of
from tests.integrations.service import KINDS
from tests.integrations.stage import Recording, SetUp
from tests.sync.stage import until

SUCCESS, DROPPED, IGNORED = (1, 0, 0), (0, 1, 0), (0, 0, 1)

STATUSES = [
    ("NOT_FOUND", IGNORED),
    ("INVALID_ARGUMENT", IGNORED),
    ("INTERNAL", IGNORED),
    ("CANCELLED", IGNORED),
    ("UNAVAILABLE", DROPPED),
    ("DEADLINE_EXCEEDED", DROPPED),
    ("RESOURCE_EXHAUSTED", DROPPED),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("code", "outcome"), STATUSES)
def test_the_status_decides(stage: SetUp, kind: str, code: str, outcome: tuple[int, int, int]) -> None:
    """Be it that the handler aborts, or that it just sets a status."""
    with stage(Recording(1)) as scene, scene.client() as client:
        for number, told in enumerate((f"abort {code}", f"status {code}"), 1):
            assert client.call(kind, told).code is grpc.StatusCode[code]
            assert scene.counted == tuple(number * count for count in outcome)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("error", "outcome"), [("TimeoutError", DROPPED), ("ValueError", IGNORED)])
def test_an_error_without_a_status_is_the_limiters_to_classify(
    stage: SetUp, kind: str, error: str, outcome: tuple[int, int, int]
) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call(kind, f"raise {error}").code is grpc.StatusCode.UNKNOWN
        assert scene.counted == outcome


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_failed_further_down_counts_as_what_it_failed_with(stage: SetUp, kind: str) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call(kind, "below UNAVAILABLE").code is grpc.StatusCode.UNKNOWN
        scene.rest()
        assert client.call(kind, "below NOT_FOUND").code is grpc.StatusCode.UNKNOWN
        assert scene.counted == (0, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_that_passes_is_a_drop(stage: SetUp, kind: str) -> None:
    """Where the machine stalls the call may come too late for that, or never; the next one does not."""

    def is_dropped() -> bool:
        with stage(Recording(1)) as scene, scene.client() as client:
            assert client.call(kind, "hold", timeout=0.25).code is grpc.StatusCode.DEADLINE_EXCEEDED
            scene.gate.open()
            assert scene.counted in (DROPPED, IGNORED, (0, 0, 0))
            return bool(scene.statistics.dropped)

    until(is_dropped)


def test_an_own_mapping(stage: SetUp) -> None:
    def mapping(code: grpc.StatusCode) -> Outcome:
        return Outcome.DROPPED if code is grpc.StatusCode.NOT_FOUND else outcome_of(code)

    with stage(Recording(9), interceptor={"outcome": mapping}) as scene, scene.client() as client:
        assert client.call("unary_unary", "abort NOT_FOUND").code is grpc.StatusCode.NOT_FOUND
        assert client.call("unary_unary", "abort INTERNAL").code is grpc.StatusCode.INTERNAL
        assert client.call("unary_unary", "a").code is grpc.StatusCode.OK
        assert scene.counted == (1, 1, 1)
