"""Each benchmark runs on small numbers, and says one finite number for each name."""

import asyncio
import math
from collections.abc import Callable, Iterable

import pytest

from batchlimit import Statistics
from benchmarks import admission, heartbeat, hits, outgoing_cost, replay_error, scrape, stall
from benchmarks.figures import Figure
from tests.servers import Server

RUNS: dict[str, Callable[[str], Iterable[Figure]]] = {
    "tokens and a permit at once, threads": lambda _: admission.threads(1, 10),
    "tokens and a permit at once, tasks": lambda _: admission.tasks(1, 10),
    "hits": lambda _: hits.hit("memory://", 1),
    "what a transport adds": lambda _: outgoing_cost.added("memory://", rounds=2),
    "the event loop": lambda url: stall.stall(url, 0.1, 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run_says_a_number_for_each_name(name: str, valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_WARM_UP", 0.1)
    figures = list(RUNS[name](valkey.url))
    assert len({each.name for each in figures}) == len(figures) > 2
    assert all(math.isfinite(each.value) for each in figures)


def test_hits_leave_nothing_in_memory() -> None:
    assert [figure.value for figure in hits.blocks("memory://")] == [0, 0]


def test_every_key_of_a_scrape_is_in_use_and_holds_tokens() -> None:
    async def of_tasks() -> Statistics:
        return (await scrape.filled(30)).statistics()

    for seen in (asyncio.run(of_tasks()), scrape.filled_for_threads(30).statistics()):
        assert (seen.keys, seen.held, seen.admitted) == (30, 30 * 20, 30)
        assert seen.policies["user:*"].keys == 30


def test_short_logs_are_replayed_with_no_error_where_nothing_is_short() -> None:
    (rules, *_), (traffic, *_) = replay_error._RULES.values(), replay_error._TRAFFIC
    assert replay_error.errors(rules, traffic, 30)[:2] == (0.0, 0.0)
