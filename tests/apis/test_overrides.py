"""Limiters of both APIs obey overrides: set, replaced, ended, removed, damaged, lost."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

import pytest

from batchlimit import RateLimited, RateLimiter
from batchlimit.admin import Admin
from batchlimit.base.steps import drive, run
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.overrides.known import EVERY, UNTOLD
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.quota import Quota
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.awaiting import awaited
from tests.depth import depth
from tests.nodes import await_fact
from tests.sync.stage import Clock

KEY = "search:ann"


class Blind(MemoryStore):
    """As in a cluster: buckets do not see the overrides, which are at another node."""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return super().take(key, quota, ask)._replace(rules=UNTOLD)

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        return super().spend(groups)


class Stage:
    """A limiter, an operator and a store in one process, whose clock stands still."""

    def __init__(self, api: Api, clock: Clock, quota: Any = "1000/s", kind: type[MemoryStore] = MemoryStore) -> None:
        self.clock, self.store = clock, kind(clock)
        self.admin = Admin(self.store, who="ann")
        self.limiter: Any = api(self.store, quota, sizer=FixedBatch(1), clock=clock, idle_after=3600.0)
        self.keys: Iterator[str] = repeat("another key")  # at which it asks

    def hear(self) -> None:
        """Have the limiter ask the store, until it knows what is there."""
        revision = self.store.rules.revision
        self.until(lambda: bool(self.limiter.rules.revision == revision))

    def set(self, *words: Any, **terms: Any) -> None:
        self.admin.set(*words, **terms)
        self.hear()

    def unset(self, name: str) -> None:
        self.admin.unset(name)
        self.hear()

    def end(self, override: Override, margin: float = 0.1) -> None:
        """Let time pass until an override has ended."""
        assert override.until is not None
        self.clock.now += override.until - self.admin.clock() + margin

    def until(self, fact: Callable[[], bool]) -> None:
        """Ask from time to time. While the overrides are read time stands still, so that it is clear when it was."""
        known = self.limiter.rules._known

        def asked() -> bool:
            if known._looking_until < self.clock.now:
                self.clock.now += EVERY
            self.limiter.try_acquire(next(self.keys))
            return fact()

        await_fact(asked, "the limiter heard of it")

    def read(self) -> None:
        """What an answer begins that tells of another revision."""
        rules = getattr(self.limiter, "_inner", self.limiter)._registry.rules
        if isinstance(self.limiter, RateLimiter):
            run(rules.read())
        else:
            awaited(lambda: drive(rules.read()))

    def look_at_the_clock(self) -> None:
        """What the background thread does, or the timer."""

        async def look() -> None:
            self.limiter._inner._registry.rules.expire()

        if isinstance(self.limiter, RateLimiter):
            self.limiter._registry.rules.expire()
        else:
            awaited(look)

    @property
    def looks_by(self) -> float:
        """When it looks by itself, at the latest: its timer, or its background thread, which is awake at -inf."""
        registry = getattr(self.limiter, "_inner", self.limiter)._registry
        return float(registry._refresher._sleeps_until if isinstance(self.limiter, RateLimiter) else registry.due)

    @property
    def limit(self) -> int:
        return int(self.limiter.decide(KEY, 0).limit)


@pytest.fixture
def stage(api: Api, clock: Clock) -> Iterator[Stage]:
    made = Stage(api, clock)
    yield made
    made.limiter.close()


def test_an_override_counts_for_the_keys_that_it_names_until_it_is_removed(stage: Stage) -> None:
    stage.set("search:*", "20/s", why="slow index")
    told = "search:ann: 20/s instead of 1000/s, by the override of search:*, set by ann: slow index"
    assert (stage.limit, str(stage.limiter.rules.explain(KEY))) == (20, told)
    assert stage.limiter.decide("export", 0).limit == 1000
    assert str(stage.limiter.rules.explain("export")) == "export: 1000/s, by the code"
    assert [each.name for each in stage.limiter.rules.overrides] == ["search:*"]
    assert 0 < sum(stage.limiter.try_acquire(KEY) for _ in range(40)) <= 20
    stage.unset("search:*")
    stage.until(lambda: stage.limit == 1000)


def test_a_key_in_use_obeys(stage: Stage) -> None:
    assert [stage.limiter.try_acquire(KEY) for _ in range(500)] == [True] * 500
    stage.set(KEY, "20/s")
    stage.until(lambda: stage.limit == 20)
    assert 0 < sum(stage.limiter.try_acquire(KEY) for _ in range(40)) <= 20


def test_an_override_ends_by_itself(stage: Stage) -> None:
    stage.limiter.acquire("another key")
    await_fact(lambda: stage.looks_by > stage.clock.now + 600, "it looks later, for keys that are idle")
    stage.admin.set("search:*", "20/s", until="10m")
    stage.read()
    await_fact(lambda: -math.inf < stage.looks_by <= stage.clock.now + 601, "the end is planned though nobody calls")
    assert stage.limit == 20
    (override,) = stage.admin.overrides()
    stage.end(override, -0.1)
    assert stage.limit == 20
    stage.clock.now += 0.2
    assert stage.limiter.rules.explain(KEY).override is not None, "nobody has looked at the clock yet"
    stage.look_at_the_clock()
    stage.until(lambda: stage.limit == 1000)
    assert stage.limiter.rules.explain(KEY).override is None


@pytest.mark.parametrize("name", [KEY, "search:*"])
def test_at_the_end_of_a_hold_the_quota_that_was_set_before_counts_again(stage: Stage, name: str) -> None:
    stage.set(name, "20/s")
    stage.until(lambda: stage.limit == 20)
    hold = stage.admin.hold(name, "1h")
    stage.hear()
    stage.until(lambda: not stage.limiter.try_acquire(KEY))
    assert str(stage.limiter.rules.explain(KEY)).startswith(f"{KEY}: 0/s instead of 1000/s, by the override of {name}")
    assert ", then 20/s, set by ann" in str(stage.limiter.rules.explain(KEY))
    stage.end(hold)
    stage.look_at_the_clock()
    stage.until(lambda: stage.limit == 20)
    assert 0 < sum(stage.limiter.try_acquire(KEY) for _ in range(40)) <= 20
    told = str(stage.limiter.rules.explain(KEY))
    assert told == f"{KEY}: 20/s instead of 1000/s, by the override of {name}, set by ann"


def test_a_limiter_that_starts_later_obeys_too(stage: Stage, api: Api) -> None:
    """Neither a deployment nor a restarted pod undoes an override."""
    stage.set("search:*", "20/s")
    assert stage.limiter.decide(KEY).limit == 20
    later: Any = api(stage.store, "5000/s", revision=99, sizer=FixedBatch(1), clock=stage.clock)
    assert later.decide(KEY).limit == 20, "the bucket tells, even before it has read anything"
    assert stage.limiter.decide(KEY).limit == 20
    later.close()


def test_an_override_of_everything_admits_all_and_counts_it(stage: Stage) -> None:
    stage.set(KEY, "0/s")
    assert not stage.limiter.try_acquire(KEY)
    stage.admin.open("search:*", "1h", why="an incident")
    stage.unset(KEY)
    stage.until(lambda: bool(stage.limiter.try_acquire(KEY)))
    before = stage.limiter.statistics()
    assert [stage.limiter.try_acquire(KEY, cost) for cost in (1, 1, 1000)] == [True] * 3
    decision = stage.limiter.decide(KEY, 1000)
    assert (decision.allowed, decision.source, stage.limiter.peek(KEY).allowed) == (True, "open", True)
    stage.limiter.acquire_all({KEY: 500, "another key": 1})
    after = stage.limiter.statistics()
    assert after.opened - before.opened == after.admitted - before.admitted - 1 == 2502
    assert "open instead of 1000/s, by the override of search:*" in str(stage.limiter.rules.explain(KEY))


def test_an_instance_that_admits_everything_hears_of_the_end_though_it_asks_for_nothing(stage: Stage) -> None:
    assert stage.limiter.try_acquire(KEY, 900)
    stage.admin.open("*", None)
    stage.hear()
    stage.until(lambda: bool(stage.limiter.try_acquire(KEY, 900)))
    stage.set("*", "5/s")
    stage.until(lambda: stage.limit == 5)
    assert sum(stage.limiter.try_acquire(KEY) for _ in range(40)) <= 5


def test_what_is_admitted_freely_ends_by_itself(stage: Stage) -> None:
    override = stage.admin.open("*", "1h")
    stage.hear()
    stage.end(override)
    stage.look_at_the_clock()
    stage.until(lambda: stage.limiter.rules.explain(KEY).override is None)
    assert stage.limiter.try_acquire(KEY)
    assert stage.limiter.decide(KEY).source == "store"


def test_shadow_mode_by_the_code_admits_all_and_counts_by_policy_what_was_to_be_refused(api: Api, clock: Clock) -> None:
    store = MemoryStore(clock)
    quotas = {"search:*": "10/hour", "*": "10/hour"}
    limiter: Any = api(store, quotas, mode={"search:*": "shadow"}, sizer=FixedBatch(1), clock=clock)
    assert [limiter.try_acquire(KEY) for _ in range(15)] == [True] * 15
    assert [limiter.try_acquire("export") for _ in range(15)] == [True] * 10 + [False] * 5
    decision = limiter.decide(KEY)
    assert (decision.allowed, decision.retry_after, decision.source) == (True, 0.0, "shadow")
    assert limiter.peek(KEY).allowed
    limiter.acquire(KEY, 9)
    limiter.acquire_all({KEY: 2, "another": 1})
    decisions = limiter.decide_all({KEY: 1, "another": 1})
    assert [decisions[key].source for key in (KEY, "another")] == ["shadow", "local"] or all(decisions.values())
    statistics = limiter.statistics()
    by_policy = {name: (each.admitted, each.shadow_refused, each.refused) for name, each in statistics.policies.items()}
    assert by_policy["search:*"] == (28, 18, 0)
    assert statistics.shadow_refused == 18
    assert by_policy["*"][1] == 0
    limiter.close()


def test_shadow_mode_by_an_override_admits_all_until_it_is_removed(stage: Stage) -> None:
    stage.set(KEY, "5/s")
    stage.until(lambda: stage.limit == 5)
    while stage.limiter.try_acquire(KEY):
        pass
    stage.admin.set("*", mode="shadow")
    stage.admin.unset(KEY)  # last: once that is obeyed, so is the shadow
    stage.hear()
    stage.until(lambda: stage.limit == 1000)
    admitted = [bool(stage.limiter.try_acquire(KEY, 500)) for _ in range(10)]
    assert admitted == [True] * 10
    assert stage.limiter.statistics().shadow_refused > 0
    stage.unset("*")
    stage.until(lambda: not (stage.limiter.try_acquire(KEY, 900) and stage.limiter.try_acquire(KEY, 900)))


def test_an_override_of_the_failure_policy_reaches_the_keys_it_names(stage: Stage) -> None:
    stage.set("search:*", weight=3, on_failure="open", why="a migration")
    stage.until(lambda: stage.limiter.rules.explain(KEY).override is not None)
    assert "weight 3, on_failure open beside 1000/s" in str(stage.limiter.rules.explain(KEY))
    assert stage.limit == 1000

    def broken(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("away")

    stage.store.take = stage.store.spend = broken  # type: ignore[method-assign]
    stage.clock.now += 60.0
    assert stage.limiter.try_acquire(KEY)
    assert stage.limiter.statistics().fallback >= 1
    assert not stage.limiter.try_acquire("export")


def test_a_trial_beside_what_counts_is_counted_and_refuses_nobody(stage: Stage) -> None:
    stage.set("search:*", "10/s", mode="shadow", why="is that enough?")
    stage.until(lambda: stage.limiter.rules.explain(KEY).trial is not None)
    assert [stage.limiter.try_acquire(KEY) for _ in range(500)] == [True] * 500
    assert "beside it the trial of 10/s of search:*" in str(stage.limiter.rules.explain(KEY))
    stage.unset("search:*")
    stage.until(lambda: bool(stage.limiter.statistics().shadow_refused))
    assert 400 <= stage.limiter.statistics().shadow_refused <= 490
    assert stage.limit == 1000


def test_a_cost_above_a_lower_limit_is_refused_and_one_above_the_code_is_a_mistake(stage: Stage) -> None:
    stage.set(KEY, "5/s")
    assert not stage.limiter.try_acquire(KEY, 40)
    assert (stage.limiter.decide(KEY, 40).allowed, stage.limiter.decide(KEY, 40).retry_after) == (False, math.inf)
    with pytest.raises(RateLimited):
        stage.limiter.acquire(KEY, 40, timeout=1.0)
    with pytest.raises(ValueError, match="never fit"):
        stage.limiter.try_acquire(KEY, 1001)


@pytest.mark.parametrize("keys", [repeat("one"), map("{}".format, count())], ids=["one key", "a new key each time"])
def test_where_buckets_cannot_tell_a_limiter_looks_for_itself(api: Api, clock: Clock, keys: Iterator[str]) -> None:
    stage = Stage(api, clock, kind=Blind)
    stage.keys = keys
    for quota in ("20/s", "30/s"):
        stage.set("search:*", quota)
        stage.until(lambda quota=quota: f"{stage.limit}/s" == quota)  # type: ignore[misc]
    stage.limiter.close()


def test_damage_leaves_overrides_in_force_and_is_said_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.set("search:*", "20/s")
    stage.store.rules._fields["rule:search:*"] = "garbage"
    stage.store.rules.revision += 1
    with caplog.at_level(logging.ERROR, "batchlimit"):
        for _ in range(3):
            stage.clock.now += 2.0
            stage.until(lambda: stage.limiter.rules.failures == 1)
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "those known before still are" in caplog.text
    assert stage.limit == 20


def test_a_hash_that_has_gone_leaves_overrides_in_force(stage: Stage) -> None:
    stage.set("search:*", "20/s")
    stage.store.rules._fields.clear()
    stage.store.rules.revision = 0
    stage.until(lambda: stage.limiter.rules.failures == 1)
    assert stage.limit == 20
    stage.clock.now += 2.0
    stage.admin.set("search:*", "30/s")
    stage.until(lambda: stage.limit == 30)


def test_many_overrides_are_obeyed(stage: Stage) -> None:
    many = depth(1_000, 9_998)
    texts = {f"rule:user:{n}:*": '{"quota": "7/s"}' for n in range(many)}
    stage.store.rules._fields |= {"form": "1", "revision": "7"} | texts
    stage.store.rules.revision = 7
    stage.hear()
    assert stage.limiter.decide(f"user:{many - 1}:x", 0).limit == 7
    assert stage.limiter.decide(f"user:{many}:x", 0).limit == 1000


def test_no_thread_is_left_that_reads(stage: Stage) -> None:
    others = set(threading.enumerate())
    stage.set("search:*", "20/s")
    await_fact(
        lambda: not any(each.name == "batchlimit-rules" for each in set(threading.enumerate()) - others), "it ended"
    )
