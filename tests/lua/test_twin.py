"""Two copies of the bucket's rules stand, in Lua and in Python, because these tests compare them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchlimit.bucket import fair_share
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Spend
from batchlimit.bucket.spendable import InstanceEntry
from batchlimit.bucket.state import as_large
from batchlimit.quota.quota import Quota
from batchlimit.reservoir import denial_cache
from tests.depth import depth
from tests.lua.interpreter import Interpreter

_LUA = Path(__file__).parents[2] / "lua"
_START = 1_700_000_000_000_000
_HOSTS = ("a", "b", "c")
_WEIGHTS = {"a": 1, "b": 1, "c": 3}

_counts = st.integers(0, 60)
_rates = st.one_of(st.floats(0.001, 1e6), st.integers(1, 20_000).map(float))
_bandwidths = st.builds(Quota, _rates, st.integers(1, 200))
_quotas = st.builds(lambda one, more: Quota(one.rate, one.burst, more), _bandwidths, st.lists(_bandwidths, max_size=2))
_elapsed = st.one_of(st.integers(0, 3_000_000), st.integers(-500_000, 0), st.just(0), st.integers(0, 10**13))

_takes = st.tuples(
    st.just("take"),
    st.sampled_from(_HOSTS),
    st.sampled_from(("next", "next", "next", "same", "older")),
    st.tuples(_counts, _counts, _counts, _counts, st.integers(0, 20)),
    st.sampled_from((0.0, 0.0, 0.05, 1.0)),
    st.sampled_from((0.0, 0.0, 0.5, 1.0, 3600.0)),
    st.sampled_from(((0, 0), (0, 0), (0, 1), (3, 0), (3, 1), (7, 0))),
)
_give_backs = st.tuples(
    st.just("give_back"),
    st.sampled_from(_HOSTS),
    st.sampled_from(("next", "next", "same")),
    st.tuples(_counts, _counts, st.sampled_from((0, 0, 3))),
)
_resets = st.tuples(st.just("reset"), st.booleans())
_spends = st.tuples(
    st.just("spend"),
    st.integers(1, 3),
    st.sampled_from((0.0, 0.0, 0.5, 3600.0)),
    st.sampled_from(((0, 0), (0, 0), (0, 1), (3, 0), (3, 1))),
)
_pauses = st.tuples(st.just("pause"), st.sampled_from((0, 0, 1, 300_000, 5_000_000, 5_000_000, 10**14)))
_calls = st.one_of(_takes, _takes, _takes, _give_backs, _give_backs, _resets, _spends, _spends, _spends, _pauses)
_steps = st.lists(st.tuples(_elapsed, _calls, st.integers(0, 2)), max_size=30)


class Pair:
    """The same bucket twice, asked the same things; every answer of the two is compared."""

    def __init__(self, quotas: list[Quota]) -> None:
        self.quotas = quotas
        self.lua = Interpreter()
        self.lua.now = _START
        self.twin: Bucket | None = None
        self.seqs = dict.fromkeys(_HOSTS, 0)
        self.epoch = 0

    def take(
        self,
        instance: str,
        seq: str,
        counts: tuple[int, ...],
        max_wait: float,
        age: float,
        rank: tuple[int, int],
        quota: Quota,
    ) -> None:
        need, more, most, held, back = counts
        ask = Ask(
            instance=instance,
            seq=self._seq(instance, seq),
            need=need,
            queued=need + more,
            want=need + more + most,
            held=held,
            back=back,
            max_wait=max_wait,
            age=age,
            round_trip=age / 10,
            weight=_WEIGHTS[instance] + (max_wait > 0),
            epoch=self.epoch,
            fill=0.5,
            rules=rank[0],
            revision=rank[1],
            refused=more % 3,
            shadow_refused=held % 3,
        )
        if self.twin is None:
            self.twin = Bucket(quota, self.lua.now, 0.5 if self.epoch else 1.0)
        grant = self.twin.take(quota, ask, self.lua.now)
        assert self.lua.take(quota, ask) == grant
        self.epoch = grant.epoch
        assert self.lua.ttl is not None
        needed = min(self.twin.expires_in(), 10 * 365 * 86_400_000_000)
        assert needed - 2000 <= self.lua.ttl * 1000 <= needed + 3_001_000, "the script and the server count in ms"

    def spend(self, cost: int, age: float, rank: tuple[int, int], quota: Quota) -> None:
        cost = min(cost, quota.largest_cost)
        spend = Spend("bucket", quota, cost, age, 0.5 if self.epoch else 1.0, *rank)
        twin = self.twin or Bucket(quota, self.lua.now, spend.fill)
        before = dict(self.lua.fields)
        told = twin.offer(spend, self.lua.now)
        if told is not None and told.is_charged:
            offered, self.twin, told = told, twin, twin.charge(spend, self.lua.now)
            assert offered[:3] == told[:3], "nobody waits for what is there"
        assert self.lua.spend(spend) == told
        if told is None or not told.is_charged:
            assert self.lua.fields == before
        else:
            self.epoch = told.epoch

    def give_back(self, instance: str, seq: str, counts: tuple[int, ...], quota: Quota) -> None:
        back = GiveBack(instance, self._seq(instance, seq), *counts)
        credited = self.twin.give_back(back, self.lua.now) if self.twin else 0
        assert self.lua.give_back(quota, back) == credited

    def reset(self, forget: bool, _quota: Quota) -> None:
        before = self.twin.reset(self.lua.now, forget=forget) if self.twin else None
        assert self.lua.reset(forget=forget) == before

    def pause(self, lasting: int, quota: Quota) -> None:
        if lasting:
            self.twin = self.twin or Bucket(quota, self.lua.now)
            assert self.lua.pause(quota, lasting) == self.twin.pause(lasting, self.lua.now)
        else:
            lifted = self.twin is not None and self.twin.resume(self.lua.now)
            assert self.lua.pause(quota, 0) == (0 if lifted else -1)

    def check(self, quota: Quota) -> None:
        if self.twin is not None:
            assert self.lua.peek(quota) == self.twin.peek(self.lua.now)
            self._check_bucket(self.twin, as_large(self.lua.fields))
            for name, instance in self.twin._table.instances.items():
                _check_instance(instance, _whole(self.lua.fields[f"instance:{name}"]))

    def _check_bucket(self, twin: Bucket, fields: Mapping[str, str]) -> None:
        table = twin._table
        assert (int(fields["epoch"]), int(fields["version"])) == (twin._epoch, twin._version)
        assert [float(level) for level in fields["level"].split()] == twin._levels
        assert (
            int(fields["outstanding"])
            == table.outstanding
            == sum(instance.held for instance in table.instances.values())
        )
        assert (int(fields["used"]), int(fields.get("refused", "0"))) == (twin._used, twin._refused)
        assert int(fields.get("shadow", "0")) == twin._shadow
        assert _whole(fields["shares"]) == [table.active, table.weights, table.lasts]
        time, swept, _, since, known, is_reserved = (*_whole(fields["times"]), 0, 0)[:6]
        assert (time, time - swept, since) == (twin._time, table.swept, twin._since)
        assert known == max(0, twin._known - time)
        assert ("rank" in fields) == (twin._heard is not None)
        if twin._heard is not None:
            assert (*_whole(fields["rank"]), int(fields["heard"])) == (*twin._rank, twin._heard)
        assert ("reserved" in fields) == bool(is_reserved) == (twin._reserved is not None)
        if twin._reserved:
            tokens, ends, whose = fields["reserved"].split(" ")
            assert (int(tokens), float(ends), whose) == (
                twin._reserved.tokens,
                twin._reserved.ends,
                f"instance:{twin._reserved.name}",
            )
        over = max(0, twin._time, self.lua.now - twin._epoch) - fair_share.SETTLES
        paused = max(over, int(fields.get("paused", f"{over}").split()[0]))
        assert paused == max(over, over if twin._paused is None else twin._paused)
        assert {name[9:] for name in fields if name.startswith("instance:")} == set(table.instances)

    def _seq(self, instance: str, seq: str) -> int:
        self.seqs[instance] += seq == "next"
        return max(0, self.seqs[instance] - (seq == "older"))


def _whole(text: str) -> list[int]:
    return [int(each) for each in text.split(" ")]


def _check_instance(instance: InstanceEntry, told: list[int]) -> None:
    held, seen, lasting, granted, seq, weight, served, starts, known = (*told, 0, 0)[:9]
    assert (held, seen, granted, seq) == (instance.held, instance.seen, instance.granted, instance.seq)
    assert (weight, seen - served, known) == (instance.weight, instance.last, max(0, instance.known - seen))
    assert seen + lasting == instance.expires or held == 0
    assert seen + starts == instance.starts or granted == 0


@settings(max_examples=depth(75, 300), deadline=None)
@given(st.lists(_quotas, min_size=1, max_size=3), _steps)
def test_the_scripts_and_their_twin_answer_alike(quotas: list[Quota], steps: list[tuple[int, tuple, int]]) -> None:  # type: ignore[type-arg]
    pair = Pair(quotas)
    for elapsed, (call, *arguments), which in steps:
        pair.lua.now += elapsed
        quota = quotas[which % len(quotas)]
        getattr(pair, call)(*arguments, quota)
        pair.check(quota)


_asks = st.tuples(
    st.integers(0, 150_000),
    st.sampled_from(_HOSTS),
    st.integers(1, 3),
    st.sampled_from((0, 0, 0, 1, 3)),
    st.sampled_from((0.0, 0.005, 0.1, 0.3, 1.0)),
)
_BUSY = Quota(10.0, 10), Quota(100.0, 20), Quota(10.0, 1), Quota(10.0, 4, (Quota(5.0, 10),))


_SMALL_SHARE = [
    (0, "b", 1, 0, 0.005), (0, "a", 1, 0, 0.0), (0, "c", 1, 0, 0.0), (20_000, "a", 1, 0, 0.0), (0, "a", 2, 0, 0.0),
    (30_000, "a", 2, 0, 0.0), (0, "a", 3, 0, 0.1),
]  # fmt: skip
"""Of a part of which nothing can be leased the last one is granted for later."""


@settings(max_examples=depth(75, 300), deadline=None)
@example(_BUSY[1], _SMALL_SHARE)
@given(st.sampled_from(_BUSY), st.lists(_asks, min_size=20, max_size=40))
def test_the_scripts_and_their_twin_answer_alike_where_callers_wait_at_instances_of_unequal_weights(
    quota: Quota, asks: list[tuple[int, str, int, int, float]]
) -> None:
    pair = Pair([quota])
    pair.take("a", "next", (quota.largest_cost, 0, 0, 0, 0), 0.0, 0.0, (0, 0), quota)
    for elapsed, instance, need, more, max_wait in asks:
        pair.lua.now += elapsed
        pair.take(instance, "next", (min(need, quota.largest_cost), more, 0, 0, 0), max_wait, 0.0, (0, 0), quota)
        pair.check(quota)


def take(
    who: str, need: int, at: int = 0, *, more: int = 0, wait: float = 0.0, rank: tuple[int, int] = (0, 0),
    seq: str = "next",
) -> tuple[int, tuple[Any, ...]]:  # fmt: skip
    """After so many microseconds an instance asks for tokens."""
    return at, ("take", who, seq, (need, more, 0, 0, 0), wait, 0.0, rank)


def spend(cost: int, at: int = 0, *, age: float = 0.0, rank: tuple[int, int] = (0, 0)) -> tuple[int, tuple[Any, ...]]:
    return at, ("spend", cost, age, rank)


def refund(who: str, tokens: int, at: int = 0, *, seq: str = "next") -> tuple[int, tuple[Any, ...]]:
    return at, ("give_back", who, seq, (0, 0, tokens))


def pause(lasting: int, at: int = 0) -> tuple[int, tuple[Any, ...]]:
    return at, ("pause", lasting)


_HUNDRED, _FAST = Quota(100.0, 100), Quota(10_000.0, 100)
_STORIES: dict[str, tuple[Quota, list[tuple[int, tuple[Any, ...]]], int]] = {
    "leases end one after the other":
        (_HUNDRED, [take("a", 0), take("b", 50), take("a", 40, 200_000), take("a", 0, 700_000)], 10 + 20 + 45),
    "others have accrued more than there is":
        (_FAST, [take("a", 0), take("b", 1, 500_000, more=99)], 50),
    "a grant that begins later is asked for again, and refused ones come between":
        (_HUNDRED, [take("a", 100), take("b", 0), take("b", 30, 500_000, wait=1.0), take("a", 60, 10_000),
         take("b", 30, 10_000, wait=1.0, seq="same")], -3),
    "a bucket that was leased of is spent of again, ten seconds later":
        (_HUNDRED, [take("a", 100), spend(1, 9_000_000), spend(2, 1_000_000), spend(3)], 95),
    "a spend takes all that is there":
        (_BUSY[2], [spend(1)], 0),
    "a rank is heard again by a spend an eighth of a minute after it was heard last, and not earlier":
        (_HUNDRED, [spend(1, each, rank=(3, 0)) for each in (0, 7_499_999, 1, 1_000_000)], 99),
    "of an instance the first ask in an eighth of a minute tells that its rank is heard":
        (_HUNDRED, [take("a", 1, each, rank=(3, 0)) for each in (0, 7_600_000, 7_300_000, 100_000, 200_000)], 98),
    "a caller waits exactly as long as it takes":
        (_HUNDRED, [take("a", 100), take("a", 0), take("a", 10, wait=0.1), take("a", 10, wait=0.100001)], -10),
    "a bucket that has forgotten its quota obeys whoever spends of it":
        (_HUNDRED, [spend(5, rank=(3, 1)), (0, ("reset", True)), spend(3)], 97),
    "a pause that has just ended cannot be lifted":
        (_HUNDRED, [pause(5_000_000), pause(0, 5_000_000)], 0),
    "one that gets exactly what it has accrued begins anew":
        (_HUNDRED, [take("a", 0), take("a", 0, 500_000, more=50)], 50),
    "all instances are looked at when a lease has just passed since the last look":
        (_HUNDRED, [take("a", 1, each) for each in (0, 400_000)], 99),
    "a bucket is plain as soon as a refund is forgotten":
        (_HUNDRED, [take("a", 100), refund("b", 3), spend(1, 29_999_999), spend(2, 1)], 98),
    "a bucket that remembers refunds is spent of, until nobody looked at its instances for a minute":
        (Quota(1.0, 100, (Quota(2.0, 100),)), [spend(50, rank=(3, 0)), refund("a", 1), spend(10, 1, rank=(3, 0)),
         refund("b", 1, 20_000_000), refund("a", 1, seq="same"), spend(10, 7_000_000, age=3600.0, rank=(3, 0)),
         refund("b", 1, 20_000_000), spend(10, 12_999_998, rank=(3, 0)), spend(10, 1, rank=(3, 0))], 83),
    "a grant just before the end of a pause begins after the shortest pace":
        (_HUNDRED, [pause(300_000), take("a", 1, 299_999, wait=0.1)], -2),
    "a pause is lifted after tokens were granted for later":
        (_HUNDRED, [take("a", 100), take("a", 30, wait=1.0), pause(5_000_000), pause(0, 1000)], -30),
    "one who does not wait at a heavier instance has no token reserved":
        (_BUSY[0], [take("a", 10), take("c", 0), take("a", 1, 100_000), take("c", 1, 80_000), take("b", 1, 30_000)], 0),
    "a lighter instance waits no longer than its need takes to refill":
        (_BUSY[2], [take("a", 1), take("c", 0), take("a", 1, 90_000, wait=1.0)], -1),
    "there is room for a fraction":
        (_HUNDRED, [take("a", 100), take("a", 0), refund("b", 10, 985_000)], 100),
}  # fmt: skip


@pytest.mark.parametrize("story", _STORIES)
def test_the_scripts_and_their_twin_answer_alike_where_chance_seldom_leads(story: str) -> None:
    """What the last step leaves in the bucket says that the story was the one to tell."""
    quota, steps, level = _STORIES[story]
    pair = Pair([quota])
    for elapsed, (call, *arguments) in steps:
        pair.lua.now += elapsed
        getattr(pair, call)(*arguments, quota)
        pair.check(quota)
    assert pair.lua.peek(quota).level == level


@pytest.mark.parametrize("quota", [Quota(100.0, 40), Quota(1e6, 1), Quota(1e-9, 2**50)])
def test_an_untouched_bucket_is_kept_until_it_is_full(quota: Quota) -> None:
    lua = Interpreter()
    lua.now = _START
    lua.take(quota, Ask("a", 1, 1, 1, 1))
    assert lua.ttl is not None
    assert lua.ttl >= min(1000 / quota.rate, 315_360_000_000)


@pytest.mark.parametrize("is_spent_of", [False, True])
def test_a_bucket_in_use_does_not_expire_although_the_clock_steps_back(is_spent_of: bool) -> None:
    """The bucket's own time stands still for an hour then, the server's goes on: to before the bucket began."""
    lua, quota = Interpreter(), Quota(100.0, 40)
    lua.now = _START
    for seq in range(1, 300):
        if is_spent_of:
            spent = lua.spend(Spend("bucket", quota, 0, 0.0, 1.0, 0, 0))
            assert spent is not None
            assert spent.is_charged
            assert lua.peek(quota).level == 40
        else:
            lua.take(quota, Ask("a", seq, 1, 1, 1))
        assert lua.ttl is not None
        assert lua.ttl >= 5000
        lua.now += 100_000 if seq != 150 else -3_600_000_000


def test_a_bucket_that_becomes_small_expires_also_just_before_its_epoch() -> None:
    """The clock was turned back so far that its end is near the epoch, where numbers are near 0."""
    lua, quota = Interpreter(), Quota(100.0, 40)
    lua.now = _START
    grant = lua.take(quota, Ask("a", 1, 1, 1, 1))
    lua.give_back(quota, GiveBack("a", 2, grant.granted))
    lua.now -= 7_000_000
    assert lua.spend(Spend("bucket", quota, 1, 0.0, 1.0, 0, 0)) is not None
    assert lua.ttl is not None
    assert lua.ttl >= 5000


def test_a_bucket_that_is_spent_of_is_kept_as_long_as_it_remembers_a_refund() -> None:
    lua, quota = Interpreter(), Quota(100.0, 40)
    lua.now = _START
    lua.spend(Spend("bucket", quota, 2))
    lua.give_back(quota, GiveBack("a", 1, 0, refund=1))
    for left in (30_000, 20_000):
        assert lua.spend(Spend("bucket", quota, 1)) is not None
        assert lua.ttl is not None
        assert left <= lua.ttl <= left + 3000
        lua.now += 10_000_000


def test_when_a_busy_bucket_expires_is_said_once_a_second() -> None:
    lua = Interpreter()
    lua.now = _START
    for seq in range(1, 1001):
        lua.take(Quota(1000.0, 40), Ask("a", seq, 1, 1, 1))
        lua.now += 10_000
    assert lua.said <= 11


def test_no_field_of_a_usual_bucket_makes_it_a_larger_hash() -> None:
    """A server keeps a hash in one piece while none of its fields and values has more than 64 bytes."""
    lua = Interpreter()
    lua.now = _START
    three = Quota(5.0, 2**50, (Quota(100 / 60, 100), Quota(1000 / 86_400, 1000)))
    lua.take(three, Ask("0123456789abcdef", 2**40, 60, 60, 60, age=1e8, max_wait=1e6))
    lua.take(three, Ask("0123456789abcdef", 2**40 + 1, 60, 60, 60, held=60, age=1e8, max_wait=1e6))
    assert max(len(text) for pair in lua.fields.items() for text in pair) <= 64


def test_the_field_reserved_is_there_while_tokens_are_reserved() -> None:
    """A greedy instance takes what is refilled, until the share of one that costs almost the burst is reserved."""
    lua, shown = Interpreter(), list[tuple[int, bool]]()
    lua.now = _START
    for seq in range(1, 50):
        lua.take(Quota(10.0, 10), Ask("greedy", seq, 1, 10, 10))
        granted = lua.take(Quota(10.0, 10), Ask("b", seq, 8, 8, 8)).granted
        shown.append((granted, "reserved" in lua.fields))
        lua.now += 100_000
    assert set(shown) == {(0, False), (0, True), (8, False)}


_MILLISECONDS = ("MARGIN", "LONGEST")


NUMBERS = [name for name, value in vars(fair_share).items() if isinstance(value, int | float)]


@pytest.mark.parametrize("name", [each for each in NUMBERS if each != "HEARD"])
def test_the_scripts_and_their_twin_have_the_same_constants(name: str) -> None:
    lua = "".join(path.read_text(encoding="utf-8") for path in sorted(_LUA.glob("*.lua")))
    ((value, power),) = re.findall(rf"^local {name} = ([0-9.]+)(?: \^ ([0-9]+))?", lua, re.MULTILINE)
    assert float(value) ** int(power or 1) * (1000 if name in _MILLISECONDS else 1) == getattr(fair_share, name)


def test_a_waiting_host_asks_again_before_the_bucket_takes_it_for_gone() -> None:
    """Half the time: an answer may take as long as the rest. It would lose what it has accrued, and wait for ever."""
    assert denial_cache._LONGEST * 1e6 <= fair_share.ACTIVE / 2
