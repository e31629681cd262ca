"""How a call ended, as far as the limiter is concerned: tables without a server."""

import asyncio

import grpc
import pytest

from batchlimit import ConcurrencyLimiter
from batchlimit.integrations.grpc.answer import outcome_of
from batchlimit.integrations.grpc.serving import CallEnd, completing
from tests.integrations.stage import Recording


class Context:
    """Says what it was told to, of a call that had so many seconds."""

    def __init__(self, given: float | None) -> None:
        self.left = given
        self.told: object = None

    def code(self) -> object:
        return self.told

    def time_remaining(self) -> float | None:
        return self.left


@pytest.mark.parametrize(
    ("given", "left", "dropped"),
    [
        (1.24, 0.0, True),
        (1.24, 0.012, True),  # the client gave it 1.231 s, and that is sent as 1240 ms
        (0.1, 0.004, True),  # the request travelled for so long
        (1.24, 0.2, False),
        (0.1, 0.05, False),
        (None, None, False),
        (9.2e18, 9.2e18, False),  # as a threaded server says that there is none
    ],
)
def test_whose_client_leaves_just_before_the_deadline_had_no_time(
    given: float | None, left: float | None, dropped: bool
) -> None:
    assert _end(given, left, None, asyncio.CancelledError(), gone=True) == ((0, 1, 0) if dropped else (0, 0, 1))


@pytest.mark.parametrize(
    ("code", "error", "gone", "counted"),
    [
        (None, None, False, (1, 0, 0)),
        (grpc.StatusCode.OK, None, False, (1, 0, 0)),
        (grpc.StatusCode.UNAVAILABLE, ValueError(), False, (0, 1, 0)),
        (grpc.StatusCode.UNAVAILABLE, None, True, (0, 1, 0)),
        (14, None, False, (0, 1, 0)),  # by its number
        (None, TimeoutError(), False, (0, 1, 0)),
        (None, TimeoutError(), True, (0, 0, 1)),
        (None, grpc.RpcError(), False, (0, 0, 1)),
    ],
)
def test_a_status_goes_before_an_error(
    code: object, error: BaseException | None, gone: bool, counted: tuple[int, int, int]
) -> None:
    assert _end(None, None, code, error, gone=gone) == counted


def _end(
    given: float | None, left: float | None, code: object, error: BaseException | None, *, gone: bool
) -> tuple[int, int, int]:
    limiter, context = ConcurrencyLimiter(Recording(1)), Context(given)
    end = CallEnd(context, completing(limiter.acquire(), outcome_of))
    context.left, context.told = left, code
    end.tell(error, gone=gone)
    counts = limiter.statistics()
    assert counts.in_flight == 0
    return counts.succeeded, counts.dropped, counts.ignored
