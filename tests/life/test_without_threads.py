"""Where no thread can be started, as in an isolated subinterpreter: callers fetch for themselves."""

import threading

import pytest

from batchlimit import FixedBatch, MemoryStore, RateLimiter


@pytest.mark.parametrize("refused", ["__init__", "start"])
def test_a_limiter_works_without_its_keeper(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("daemon threads are disabled in this (sub)interpreter")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, refused, refuse)
        with RateLimiter(MemoryStore(), "0.001/s burst 100", sizer=FixedBatch(10)) as limiter:
            assert sum(limiter.try_acquire("key") for _ in range(120)) == 100
    assert "not renewed or given back in time: daemon threads" in caplog.text
