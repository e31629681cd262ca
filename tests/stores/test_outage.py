"""What callers and operators read of a store that is away."""

import pytest

from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.stores import outage
from batchlimit.stores.outage import THRESHOLD, Outages

ADDRESS = "redis://h:1/0"
NOW = 100.0


def refusal(part: str, error: StoreUnavailable, pause: float, patched: pytest.MonkeyPatch) -> CircuitOpen:
    outages = Outages(lambda: ADDRESS)
    for _ in range(THRESHOLD):
        outages.failed(part, error)
    outages.breakers[part].plan_probe(pause, NOW)
    patched.setattr(outage, "steady", lambda: NOW)
    return outages.refusal(part)


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
    part: str, error: StoreUnavailable, pause: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(refusal(part, error, pause, monkeypatch)) == message


def test_an_open_circuit_has_the_code_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal("", StoreUnavailable("full", code="OOM"), 0.1, monkeypatch)
    assert (found.address, found.code) == (ADDRESS, "OOM")
