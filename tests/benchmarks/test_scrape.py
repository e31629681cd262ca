"""The benchmark of a scrape counts what it says: every key, in use, with tokens."""

import asyncio

import pytest

from batchlimit import Statistics
from benchmarks.scrape import filled, filled_for_threads, main


async def of_tasks() -> Statistics:
    return (await filled(30)).statistics()


def test_every_key_is_in_use_and_holds_tokens() -> None:
    for seen in (asyncio.run(of_tasks()), filled_for_threads(30).statistics()):
        assert (seen.keys, seen.held, seen.admitted) == (30, 30 * 20, 30)
        assert seen.policies["user:*"].keys == 30


def test_it_prints_its_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("sys.argv", ["scrape", "--keys", "30", "--rounds", "1"])
    main()
    assert len(capsys.readouterr().out.splitlines()) == 1 + 6
