"""What callers and operators read of a store that is away."""

import pytest

from batchlimit.errors import StoreUnavailable
from batchlimit.stores.outage import THRESHOLD, Breaker, circuit_open

ADDRESS = "redis://h:1/0"
NOW = 100.0


def opened(error: StoreUnavailable, pause: float) -> Breaker:
    breaker = Breaker()
    for _ in range(THRESHOLD):
        breaker.failed(error, NOW)
    breaker.plan_probe(pause, NOW)
    return breaker


@pytest.mark.parametrize(
    ("part", "error", "pause", "message"),
    [
        (
            "",
            StoreUnavailable("redis://h:1/0 failed: ConnectionError: refused"),
            0.4,
            "redis://h:1/0 is away (circuit open, next probe in 0.40 s, see on_failure): ConnectionError: refused",
        ),
        (
            "",
            StoreUnavailable("redis://h:1/0 did not answer in time"),
            -0.4,
            "redis://h:1/0 is away (circuit open, next probe in 0.00 s, see on_failure): did not answer in time",
        ),
        (
            "g:2",
            StoreUnavailable("no idea"),
            1.0,
            "g:2 of redis://h:1/0 is away (circuit open, next probe in 1.00 s, see on_failure): no idea",
        ),
    ],
)
def test_an_open_circuit_names_the_address_and_the_cause_once_and_the_next_probe(
    part: str, error: StoreUnavailable, pause: float, message: str
) -> None:
    assert str(circuit_open(ADDRESS, part, opened(error, pause), NOW)) == message


def test_an_open_circuit_has_the_code_of_its_cause() -> None:
    found = circuit_open(ADDRESS, "", opened(StoreUnavailable("full", code="OOM"), 0.1), NOW)
    assert (found.address, found.code) == (ADDRESS, "OOM")
