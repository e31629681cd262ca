"""What both keyed concurrency limiters do with watchers: those of all keys, and those of the group of one key."""

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.errors import WatcherUnavailable
from batchlimit.laws import AIMD, Gitaly, Knee, Settable
from batchlimit.watchers import MemoryWatcher
from tests.apis.keyed import Told, close, round_of
from tests.concurrency.watchers.trees import write
from tests.sync.stage import until


def gitaly() -> Gitaly:
    return Gitaly(initial=10, minimum=1, maximum=20)


def limits_of(limiter: Any, *keys: str) -> list[int]:
    return [limiter._gates.find(key).section.gate.limit for key in keys]


def test_watchers_move_the_limit_of_each_key(kind: Any) -> None:
    watcher = Told()
    limiter = kind({"repo:*": Keyed(gitaly), "*": 5}, watchers=[watcher], every=0.001)
    until(lambda: limits_of(limiter, "repo:1", "repo:2") == [20, 20])
    watcher.event = "memory 0.95"
    until(lambda: limits_of(limiter, "repo:1", "repo:2") == [1, 1])
    assert limits_of(limiter, "other") == [5]
    (counted,) = limiter.statistics().watchers
    assert (counted.name, counted.events > 0) == ("told", True)
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_keys_share_takes_one_step_a_period_for_all_of_them(kind: Any) -> None:
    """As Gitaly has it: one limit for each call, which holds for each repository."""
    limiter = kind({"repo:*": Keyed(gitaly, shared=True)}, watchers=[Told()])
    assert limits_of(limiter, "repo:1", "repo:2") == [10, 10]
    round_of(limiter)
    assert limits_of(limiter, "repo:1", "repo:2", "repo:3") == [11, 11, 11]
    round_of(limiter, "memory", "cpu")
    assert limits_of(limiter, "repo:1", "repo:2", "repo:3") == [5, 5, 5]
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_the_watchers_of_a_key_move_its_limit_alone(kind: Any, seen: dict[str, Told]) -> None:
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])})
    limits_of(limiter, *seen)
    seen["repo:1"].event = "memory"
    round_of(limiter)
    assert limits_of(limiter, *seen) == [5, 11]
    seen["repo:1"].event = None
    round_of(limiter)
    assert limits_of(limiter, *seen) == [6, 12]
    close(limiter)


def test_the_rounds_poll_the_watchers_of_keys_too(kind: Any, seen: dict[str, Told]) -> None:
    seen["repo:1"].event = "memory"
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])}, every=0.001)
    until(lambda: limits_of(limiter, *seen) == [1, 20])
    assert [each.name for each in limiter.statistics().watchers] == ["keys"]
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_a_control_group_may_appear_later(kind: Any, tmp_path: Path) -> None:
    """A factor of 0.75 at 75 % of memory, as the blueprint of Gitaly has it."""

    def watchers(key: str) -> list[MemoryWatcher]:
        return [MemoryWatcher(0.75, group=f"repos/{key}", root=tmp_path)]

    limiter = kind({"*": Keyed(lambda: Gitaly(initial=20, factor=0.75), watchers=watchers)})
    limits_of(limiter, "a")
    round_of(limiter)
    (tmp_path / "cgroup.controllers").write_text("memory")
    group = tmp_path / "repos" / "a"
    group.mkdir(parents=True)
    write(
        group,
        memory_max=1000,
        memory_high="max",
        memory_current=760,
        memory_stat={"inactive_file": 0},
        memory_events={"oom": 0, "oom_kill": 0},
    )
    assert limits_of(limiter, "a") == [21]
    round_of(limiter)
    assert limits_of(limiter, "a") == [15]
    write(group, memory_current=400)
    round_of(limiter)
    assert limits_of(limiter, "a") == [16]
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_watchers_of_one_key_that_fail_are_told_of_and_change_nothing_for_the_others(
    kind: Any, seen: dict[str, Told], caplog: pytest.LogCaptureFixture
) -> None:
    seen["repo:1"].event, seen["repo:2"].event = OSError("gone"), "memory"
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])})
    limits_of(limiter, *seen)
    with caplog.at_level(logging.WARNING, "batchlimit"):
        watchers = limiter._gates
        watchers.poll()
        watchers.poll()
        watchers.end_period(())
    assert limits_of(limiter, *seen) == [11, 5]
    assert [each.getMessage() for each in caplog.records if "a watcher of key" in each.getMessage()] == [
        "a watcher of key 'repo:1' failed, which counts as nothing seen: OSError('gone')"
    ]
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_fails_keeps_no_other_from_hearing(kind: Any) -> None:
    class Broken(Gitaly):
        def calibrate(self, events: Sequence[str], now_ns: int) -> int:
            raise ZeroDivisionError

    limits = {"a": Keyed(Broken), "b": Keyed(Broken, shared=True), "c": Keyed(gitaly), "d": Keyed(gitaly, shared=True)}
    limiter = kind(limits, watchers=[Told()])
    limits_of(limiter, *limits)
    round_of(limiter)
    assert limits_of(limiter, *limits) == [15, 15, 11, 11]
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_hears_of_no_watchers_hears_of_a_drop_and_listeners_are_told_why() -> None:
    limits = {
        "a": Keyed(lambda: AIMD(initial=10, minimum=1)),
        "b": Keyed(lambda: AIMD(initial=10, minimum=1), shared=True),
        "c": Keyed(Knee),
    }
    with closing(KeyedConcurrencyLimiter(limits, watchers=[Told()])) as limiter:
        told = []
        limiter.listen(lambda *change: told.append(change), why=True)
        for key in limits:
            limiter.acquire(key).success()
        round_of(limiter, "memory")
    assert told == [("a", 10, 9, "watchers"), ("b", 10, 9, "watchers"), ("c", 20, 17, "watchers")]


def test_a_limit_that_is_set_holds_at_once_though_it_is_watched() -> None:
    law = Settable(3)
    with closing(KeyedConcurrencyLimiter({"*": Keyed(lambda: law)}, watchers=[Told()])) as limiter:
        limits_of(limiter, "a")
        law.set_limit(7)
        assert limits_of(limiter, "a") == [7]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(Gitaly)}), "needs watchers"),
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(Gitaly, shared=True)}), "needs watchers"),
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(gitaly)}).acquire("a"), "needs watchers"),
        (lambda: Keyed(Gitaly, shared=True, watchers=lambda key: []), "neither a number nor a law that keys share"),
        (lambda: Keyed(20, watchers=lambda key: []), "neither a number nor a law that keys share"),
        (lambda: Keyed(Gitaly, watchers=[Told()]), "must be a function of a key"),  # type: ignore[arg-type]
        (lambda: KeyedConcurrencyLimiter({"*": 1}, watchers=[Told]), "must have a name"),  # type: ignore[list-item]
        (lambda: KeyedConcurrencyLimiter({"*": 1}, watchers=[Told()], every=0), r"every \(seconds\) must be"),
    ],
)
def test_what_would_stay_still_is_an_error(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.usefixtures("by_hand")
def test_a_key_whose_watchers_cannot_be_had_yet_grows_and_nothing_is_logged(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def watchers(key: str) -> list[Told]:
        raise WatcherUnavailable("no such group")

    limiter = kind({"*": Keyed(gitaly, watchers=watchers)})
    limits_of(limiter, "a")
    with caplog.at_level(logging.WARNING, "batchlimit"):
        round_of(limiter)
    assert (limits_of(limiter, "a"), caplog.records) == ([11], [])
    close(limiter)
