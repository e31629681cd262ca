"""Limiters of both APIs go by a file, and by another one that takes its place."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchlimit import RateLimiter, StoreUnavailable
from batchlimit.admin import Admin
from batchlimit.batching import FixedBatch
from batchlimit.rules import RuleFile
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.nodes import await_fact
from tests.sync.stage import Clock

KEY = "search:ann"
FIRST = '[limits]\n"search:*" = "100/s"\n"*" = "1000/s"\n'
SECOND = '[limits]\n"search:*" = "10/s"\n"*" = "1000/s"\n'


def put(path: Path, text: str) -> None:
    """Write a file beside, and rename it: nobody ever reads half of it."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def mount(folder: Path, version: int, text: str) -> Path:
    """Have `folder` say another text, as Kubernetes does it: the path stays, and leads elsewhere by `..data`."""
    data = folder / f"..{version}"
    data.mkdir()
    (data / "limits.toml").write_text(text)
    link = folder / "..data_tmp"
    link.symlink_to(data.name)
    link.replace(folder / "..data")
    path = folder / "limits.toml"
    if not path.is_symlink():
        path.symlink_to("..data/limits.toml")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "limits.toml"
    put(path, FIRST)
    return path


class Stage:
    """A limiter that goes by a file, on a store in this process, whose clock stands still."""

    def __init__(self, api: Api, clock: Clock, path: Path, **options: Any) -> None:
        self.path, self.file, self.clock, self.store = path, RuleFile(path), clock, MemoryStore(clock)
        self.limiter: Any = api(self.store, self.file, sizer=FixedBatch(1), clock=clock, **options)

    def says(self, text: str) -> bool:
        """Have the file say this, and look at it."""
        put(self.path, text)
        return self.file.look()

    def limit(self, key: str = KEY) -> int:
        return int(self.limiter.decide(key, 0).limit)

    def until(self, fact: Callable[[], bool]) -> None:
        """Ask from time to time: what is leased by another quota goes back with the next request."""

        def asked() -> bool:
            self.clock.now += 0.5
            self.limiter.try_acquire("another")
            return fact()

        await_fact(asked, "the limiter obeys")


@pytest.fixture
def stage(api: Api, clock: Clock, path: Path) -> Iterator[Stage]:
    made = Stage(api, clock, path)
    yield made
    made.limiter.close()


def test_a_limiter_goes_by_a_file_and_by_the_one_that_takes_its_place(stage: Stage) -> None:
    assert (stage.limit(), stage.limit("another")) == (100, 1000)
    assert stage.says(SECOND)
    assert (stage.limit(), stage.limit("another")) == (10, 1000)
    assert stage.limiter.rules.explain(KEY).code.burst == 10
    assert stage.limiter.rules.file is stage.file
    assert not stage.file.look(), "it has not changed again"


def test_links_may_be_swapped_as_kubernetes_does_it(api: Api, clock: Clock, tmp_path: Path) -> None:
    stage = Stage(api, clock, mount(tmp_path, 1, FIRST))
    assert stage.limit() == 100
    mount(tmp_path, 2, SECOND)
    assert stage.file.look()
    assert stage.limit() == 10
    mount(tmp_path, 3, SECOND)
    assert not stage.file.look(), "it says the same"
    stage.limiter.close()


def test_what_was_used_stays_used_as_a_share_of_the_burst(stage: Stage) -> None:
    for _ in range(50):
        assert stage.limiter.try_acquire(KEY)
    stage.says(SECOND)
    assert 1 <= sum(stage.limiter.try_acquire(KEY) for _ in range(20)) <= 5
    stage.says(FIRST)
    assert sum(stage.limiter.try_acquire(KEY) for _ in range(200)) <= 20, "there and back adds no tokens"


def test_a_key_that_nobody_may_use_can_be_used_again_at_once(stage: Stage) -> None:
    stage.says(FIRST.replace("100/s", "0/s"))
    assert not stage.limiter.try_acquire(KEY)
    stage.says(FIRST)
    stage.until(lambda: bool(stage.limiter.try_acquire(KEY)))


@pytest.mark.parametrize(
    "text",
    ["", "[limits", '[limits]\n"*" = "10/minite"\n', '[limits]\n"*" = {quta = "1/s"}\n', "\ufeff\x00", "limits = 7"],
    ids=repr,
)
def test_a_file_that_cannot_be_used_is_refused_whole(stage: Stage, path: Path, text: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "batchlimit")
    put(path, text)
    assert [stage.file.look() for _ in range(3)] == [False] * 3
    assert (stage.limit(), stage.file.failures) == (100, 1)
    assert "limits.toml" in stage.file.problem
    assert stage.limiter.statistics().rules_failures == 1
    told = [each for each in caplog.records if getattr(each, "batchlimit_event", "") == "rules.refused"]
    assert (len(told), told[0].levelno) == (1, logging.ERROR)
    assert stage.says(SECOND)
    assert (stage.limit(), stage.file.problem) == (10, "")


def test_a_file_that_is_gone_is_told_of_once_and_what_it_said_stays(stage: Stage, path: Path) -> None:
    away = path.rename(path.with_name("elsewhere"))
    assert [stage.file.look() for _ in range(3)] == [False] * 3
    assert (stage.limit(), stage.file.failures) == (100, 1)
    away.rename(path)
    assert not stage.file.look()
    assert stage.file.problem == ""


def test_a_name_that_the_file_has_no_more_keeps_its_quota_unless_another_name_matches(stage: Stage) -> None:
    stage.says('[limits]\n"search:*" = "10/s"\n')
    assert (stage.limit(), stage.limit("another")) == (10, 1000), "no key in use is left without a quota"
    stage.says('[limits]\n"*" = "7/s"\n')
    assert (stage.limit(), stage.limit("another")) == (7, 7)


def test_counts_stay_with_the_name_by_which_a_key_went(stage: Stage) -> None:
    for _ in range(5):
        stage.limiter.try_acquire(KEY)
    stage.says('[limits]\n"search:ann" = "100/s"\n"*" = "1000/s"\n')
    for _ in range(3):
        stage.limiter.try_acquire(KEY)
    statistics = stage.limiter.statistics()
    assert {name: each.admitted for name, each in statistics.policies.items()} == {
        "search:ann": 3, "*": 0, "search:*": 5,
    }  # fmt: skip
    assert statistics.admitted == 8


def test_an_override_outranks_a_file(stage: Stage) -> None:
    Admin(stage.store).set(KEY, "3/s")
    stage.until(lambda: stage.limit() == 3)
    stage.says(SECOND)
    assert stage.limit() == 3
    Admin(stage.store).unset(KEY)
    stage.until(lambda: stage.limit() == 10)


def test_a_file_says_mode_and_failure_policy_of_its_names(api: Api, clock: Clock, path: Path) -> None:
    put(path, '[limits]\n"search:*" = {quota = "1/s", mode = "shadow"}\n"*" = {quota = "1/s", on_failure = "open"}\n')
    stage = Stage(api, clock, path)
    assert [stage.limiter.try_acquire(KEY) for _ in range(3)] == [True] * 3
    assert stage.limiter.statistics().shadow_refused == 2

    def away(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("away")

    stage.store.take = stage.store.spend = away  # type: ignore[method-assign]
    assert stage.limiter.try_acquire("another")
    assert stage.limiter.statistics().fallback >= 1
    stage.says('[limits]\n"*" = "1/s"\n')
    assert not stage.limiter.try_acquire("a third one")
    stage.limiter.close()


def test_a_file_that_falls_back_to_a_lower_revision_is_refused_and_says_so(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    assert stage.says("revision = 5\n" + FIRST)
    caplog.clear()
    for older in ("revision = 3\n" + SECOND, SECOND):
        assert not stage.says(older)
        assert "revision: raise it to 5 at least, which keys in use obey" in stage.file.problem
    assert stage.file.problem in caplog.text
    assert "is obeyed from now on" not in caplog.text
    assert (stage.limit(), stage.file.failures) == (100, 1)
    assert stage.says("revision = 5\n" + SECOND)


def test_of_two_files_the_one_of_the_higher_revision_counts(api: Api, clock: Clock, tmp_path: Path) -> None:
    new, old, store = tmp_path / "new.toml", tmp_path / "old.toml", MemoryStore(clock)
    put(new, "revision = 2\n" + SECOND)
    put(old, "revision = 1\n" + FIRST)
    limiters: list[Any] = []
    for path in (new, old):
        clock.now += 1.0
        limiters.append(api(store, RuleFile(path), sizer=FixedBatch(1), clock=clock))
    for each in limiters:
        each.try_acquire(KEY)
    assert [each.decide(KEY, 1).limit for each in limiters] == [10, 10]
    for each in limiters:
        each.close()


def test_a_watched_file_is_looked_at_in_the_background(api: Api, path: Path) -> None:
    file = RuleFile(path, watch=True, interval=0.01)
    limiter: Any = api(MemoryStore(), file)
    assert limiter.decide(KEY, 0).limit == 100
    put(path, SECOND)
    await_fact(lambda: bool(limiter.decide(KEY, 0).limit == 10), "the limiter obeys")
    file.close()
    limiter.close()


def test_several_limiters_go_by_one_file_which_keeps_none_alive(api: Api, path: Path, clock: Clock) -> None:
    file = RuleFile(path)
    limiters: list[Any] = [api(MemoryStore(clock), file, clock=clock) for _ in range(3)]
    put(path, SECOND)
    file.look()
    assert [each.decide(KEY, 0).limit for each in limiters] == [10] * 3
    limiters.pop().close()
    put(path, FIRST)
    assert file.look()
    assert [each.decide(KEY, 0).limit for each in limiters] == [100] * 2
    for each in limiters:
        each.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_looks_by_itself(path: Path) -> None:
    file = RuleFile(path, watch=True, interval=0.01)
    limiter = RateLimiter(MemoryStore(), file)
    limiter.try_acquire(KEY)
    reads, writes = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            os.read(reads, 1)
            await_fact(lambda: limiter.decide(KEY, 0).limit == 10, "the child obeys")
            status = 0
        finally:
            os._exit(status)
    put(path, SECOND)
    os.write(writes, b".")
    assert os.waitpid(child, 0)[1] == 0
    file.close()
    limiter.close()
