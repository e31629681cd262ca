"""What the benchmark of outbound calls counts: the provider's bucket, its one pause, and who calls in it."""

import time

import pytest

from benchmarks.outbound import Arrival, Provider, _pause


def test_the_provider_refuses_beyond_its_bucket_and_says_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    provider = Provider(pauses_at=200.0)
    answers = [provider.answer() for _ in range(21)]
    assert [b"200 OK" in each for each in answers] == [True] * 20 + [False]
    assert b"retry-after-ms: 11\r\n" in answers[-1], "a token in 10 ms, rounded up"
    now[0] += 0.011
    assert b"200 OK" in provider.answer()


def test_who_calls_in_a_pause_is_counted_apart_from_who_had_leased() -> None:
    arrivals = [Arrival(at, 200) for at in (10.5, 11.4, 11.6, 14.9, 15.0, 15.95, 16.0)]
    soon, early, first, _ = _pause(10.0, [Arrival(10.0, 429), *arrivals])
    assert (soon.value, early.value, early.verdict, first.value) == (2, 2, "short", 2)
