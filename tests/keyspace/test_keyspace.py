"""The keyspace: which entry stands for a key, what is let go of, and what an error of one call is to each key."""

import gc
import inspect
import subprocess
import sys
import weakref
from functools import partial
from itertools import count
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.base.unique import live_limiters
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Groups, Spend
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.keyspace.spending import of_each
from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.overrides.code import Code, Rank
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.waiter import Admit
from batchlimit.sync.waiting_thread import AcquireAll
from tests.opcodes import Signals
from tests.sync.stage import KEY, Clock, Stage

pytestmark = pytest.mark.usefixtures("without_refresher")
SLOW = Quota(0.001, 100)


def test_a_key_has_one_entry_until_that_has_retired() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        first = keyspace.find(KEY, SLOW)
        assert keyspace.find(KEY, SLOW) is first
        assert first.evict()
        second = keyspace.find(KEY, SLOW)
        assert second is not first
        assert keyspace.find(KEY, SLOW) is second


def test_a_key_that_has_just_retired_goes_on_where_it_ended() -> None:
    """Nobody has let it go yet: the next caller comes first."""
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(1), clock=(clock := Clock()), idle_after=1e6) as limiter:
        assert limiter.try_acquire(KEY)
        keyspace, first = limiter._registry._keyspace, limiter._entries[KEY]
        while not first.reservoir.state.is_retired:
            clock.now = first.reservoir.lifecycle.due()
            first.reservoir.lifecycle.tend(clock.now)
        second = keyspace.find(KEY, SLOW)
        assert second.reservoir.state.view.known() == first.reservoir.state.view.known()
        assert (limiter.statistics().keys, limiter.statistics().admitted) == (1, 1)


def test_keys_that_are_not_in_use_leave_no_sooner_than_there_is_no_room() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(1), clock=Clock(), max_keys=20) as limiter:
        keyspace = limiter._registry._keyspace
        snapshot = KeySnapshot(1000.0, 0.0, 1000.0, 1, 7, 60, 0, 0.002, 1000.0)
        for number in range(10):
            keyspace.dormant.put(f"dormant {number}", snapshot, 1000.0)
        for number in range(12):
            keyspace.find(f"in use {number}", SLOW)
            assert len(keyspace) == min(11 + number, 20)


def test_a_limiter_that_has_ended_keeps_no_entry() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(5), clock=Clock()) as limiter:
        assert limiter.try_acquire(KEY)
        entry = weakref.ref(limiter._entries[KEY].lock)
    gc.collect()
    assert entry() is None
    assert limiter.statistics().admitted == 1


def test_the_end_of_the_interpreter_is_left_to_the_registry_which_comes_after_the_users_own_handlers() -> None:
    with RateLimiter(Stage(), SLOW, clock=Clock()) as limiter:
        ends: Any = weakref.finalize
        own = [each for each in ends._registry if each.peek()[0] is limiter]
        assert [each.atexit for each in own] == [False]


def test_a_limiter_of_an_url_gives_its_store_the_time_to_connect_that_was_said() -> None:
    with RateLimiter.from_url("memory://", "1/s", deadline=0.5, connect_timeout=7.0) as limiter:
        assert limiter._registry.store.longest == 7.5


def test_an_entry_that_a_caller_needs_stays_and_another_one_goes() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        idle, needed = keyspace.find("idle", SLOW), keyspace.find("needed", SLOW)
        needed.reservoir.requests.refunds = 1
        assert [keyspace.evict(each) for each in (idle, needed)] == [True, False]
        assert list(limiter._entries) == ["needed"]


def test_what_uses_an_entry_hears_once_that_it_is_let_go() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace, heard = limiter._registry._keyspace, list[Any]()
        keyspace._left = heard.append
        entry = keyspace.find(KEY, SLOW)
        assert keyspace.evict(entry)
        keyspace.let_go(entry)
        assert heard == [entry]


def test_the_waits_of_a_key_count_to_the_name_that_the_code_has_for_it_now() -> None:
    with RateLimiter(Stage(), {"*": SLOW}, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        entry = keyspace.find(KEY, keyspace._code.quota(KEY))
        code = Code(quota_rule({KEY: Quota(0.002, 200), "*": SLOW}), "closed", "enforce", Rank(0, 1.0))
        before = entry.reservoir.state.waits
        assert before is keyspace._tallies.waits(keyspace._code.rule(KEY).quota)
        keyspace.obey(code)
        keyspace.recode(entry)
        assert entry.reservoir.state.waits is keyspace._tallies.waits(code.rule(KEY).quota)
        assert entry.reservoir.state.waits is not before


def test_what_a_key_did_is_counted_once_though_it_has_another_name_now() -> None:
    with RateLimiter(Stage(), {"*": SLOW}, sizer=FixedBatch(50), clock=Clock()) as limiter:
        assert limiter.try_acquire(KEY)
        keyspace = limiter._registry._keyspace
        keyspace.obey(Code(quota_rule({KEY: Quota(0.002, 200), "*": SLOW}), "closed", "enforce", Rank(0, 1.0)))
        keyspace.recode(limiter._entries[KEY])
        assert limiter.statistics().admitted == 1
        assert limiter.try_acquire(KEY)
        told = limiter.statistics().policies
        assert {name: each.admitted for name, each in told.items()} == {KEY: 1, "*": 1}


def test_an_entry_that_was_let_go_is_not_counted_again_by_another_code() -> None:
    with RateLimiter(Stage(), {"*": SLOW}, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        entry = keyspace.find(KEY, SLOW)
        assert keyspace.evict(entry)
        keyspace.obey(Code(quota_rule({KEY: Quota(0.002, 200), "*": SLOW}), "closed", "enforce", Rank(0, 1.0)))
        keyspace.recode(entry)
        assert sum(map(len, keyspace._tallies.pages)) == 0


def test_an_instance_is_named_by_sixteen_characters_that_no_other_one_has() -> None:
    """A server keeps the bucket's hash in one piece while no field of it is long."""
    with RateLimiter(Stage(), SLOW) as one, RateLimiter(Stage(), SLOW) as other:
        names = {each._registry._keyspace._instance.name for each in (one, other)}
    assert [len(name) for name in names] == [16, 16]


@pytest.mark.parametrize(
    ("quota", "connect_timeout", "error"), [("5/fortnight", 1.0, "fortnight"), ("5/s", 0.0, "connect_timeout")]
)
def test_a_limiter_that_cannot_be_made_of_an_url_opens_no_store(
    quota: str, connect_timeout: float, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Any]()
    monkeypatch.setattr(RateLimiter, "_open", lambda *each, **_: opened.append(each))
    with pytest.raises(ValueError, match=error):
        RateLimiter.from_url("embedded://", quota, connect_timeout=connect_timeout)
    assert opened == []


def test_a_limiter_is_among_those_of_its_process() -> None:
    with RateLimiter(Stage(), SLOW, clock=Clock()) as limiter:
        assert limiter in live_limiters


@pytest.mark.parametrize("kind", [RateLimiter, AsyncRateLimiter])
def test_a_limiter_of_an_url_has_the_defaults_of_its_class(kind: Any) -> None:
    own, of_url = (inspect.signature(make).parameters for make in (kind, kind.from_url))
    shared = own.keys() & of_url.keys()
    assert {each: of_url[each].default for each in shared} == {each: own[each].default for each in shared}
    assert of_url.keys() - shared == {"url", "connect_timeout"}


def test_a_limiter_has_the_options_that_are_told_also_if_it_is_made_of_an_url() -> None:
    """In a process of its own: here deadlines are long."""
    program = """
from dataclasses import fields
from inspect import signature
from batchlimit import RateLimiter
from batchlimit.reservoir.options import Options
own = {each.name: each.default for each in fields(Options)}
for make in (RateLimiter, RateLimiter.from_url):
    assert {each: signature(make).parameters[each].default for each in own} == own
assert signature(RateLimiter.from_url).parameters["connect_timeout"].default == 1.0
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Who is interrupted while it lets a key entry go leaves nothing of it: it is done again, and counted once


def test_an_entry_that_was_half_let_go_leaves_no_page_behind() -> None:
    """A page held it for ever, with those who had waited there."""
    for place in count(1):
        with RateLimiter(Stage(), Quota(0.001, 100), sizer=FixedBatch(50), clock=Clock()) as limiter:
            assert limiter.try_acquire(KEY)
            keyspace, entry = limiter._registry._keyspace, limiter._entries[KEY]
            assert entry.evict()
            signals = Signals(place)
            signals.run(partial(keyspace.let_go, entry))
            keyspace.let_go(entry)
            seen = limiter.statistics()
            assert (sum(map(len, keyspace._tallies.pages)), len(keyspace._cache)) == (0, 0), signals.raised
            assert (seen.keys, seen.admitted) == (0, 1), signals.raised
            if not signals.raised:
                break
    assert place > 10


# What an error of one call is to each of its spends


ANN, BOB = (Spend(key, Quota(1.0), 1) for key in ("ann", "bob"))
DAMAGED, AWAY = BucketUnavailable("damaged", code="DAMAGED"), StoreUnavailable("away")


@pytest.mark.parametrize(
    ("error", "groups", "expected"),
    [
        (DAMAGED, [[ANN]], DAMAGED),
        (DAMAGED, [[ANN, BOB]], None),
        (DAMAGED, [[ANN], [BOB]], None),
        (AWAY, [[ANN]], AWAY),
        (AWAY, [[ANN, BOB]], AWAY),
        (AWAY, [[ANN], [BOB]], AWAY),
    ],
)
def test_of_several_buckets_only_take_says_which_one_is_damaged(
    error: StoreUnavailable, groups: Groups, expected: StoreUnavailable | None
) -> None:
    assert of_each(error, groups) is expected


# What a caller of several keys does with what it holds


@pytest.mark.parametrize(("early", "late"), [("ann", "bob"), ("bob", "ann")])
def test_a_caller_waits_next_at_the_key_whose_tokens_have_expired_meanwhile(
    early: str, late: str, without_refresher: None
) -> None:
    clock = Clock()
    with RateLimiter(Stage(), Quota(0.001, 100), sizer=FixedBatch(1), clock=clock) as limiter:
        caller = AcquireAll({"ann": 1, "bob": 1}, limiter._registry, 1, {})
        first = caller._hold(early, NO_WAIT).verdict
        assert isinstance(first, Admit)
        clock.now = first.before - 0.001
        caller._hold(late, NO_WAIT)
        clock.now = first.before
        assert caller._confirm() == early
        caller._leave()
