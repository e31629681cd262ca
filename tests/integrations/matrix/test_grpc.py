"""The behaviour of the matrix for gRPC, on both of its APIs: a server in a process of its own, with real clients."""

from collections.abc import Iterator

import grpc
import pytest

from tests.integrations.matrix.serve import GRPC
from tests.integrations.matrix.served import Served, limits_told, serving
from tests.integrations.service import KINDS

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture(scope="module", params=GRPC)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param) as served:
        yield served


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_burst_as_many_as_the_limit_are_admitted_and_after_retry_after_one_more(served: Served, kind: str) -> None:
    with served.calls() as call:
        begun = [call("Search", "a", user=kind, kind=kind) for _ in range(6)]
        admitted = [each for each in begun if each.code is OK]
        refused = [each for each in begun if each.code is EXHAUSTED]
        assert (len(admitted), len(refused)) == (2, 4)
        for each in admitted:
            limit = limits_told(each)["search"]
            assert (limit.q, limit.w) == (4, 3600)
        waits = [int(each.told["retry-after"]) for each in refused]
        assert all(1800 <= each <= 1.1 * 1801 for each in waits)
        served.pass_by(min(waits))
        assert [call("Search", "a", user=kind, kind=kind).code for _ in range(2)] == [OK, EXHAUSTED]


def test_a_stream_arrives_whole_and_is_charged_by_what_was_sent(served: Served) -> None:
    with served.calls() as call:
        assert call("Sent", *"abc", kind="stream_stream").answers() == ["a", "b", "c"]
    served.until_left("sent:ann", 97)


def test_a_client_whose_connection_is_lost_is_settled(served: Served) -> None:
    with served.calls() as call:
        assert call("Gone", "flood", user="lost", kind="unary_stream").first() == "first"
    served.until_left("gone:lost", 8)
