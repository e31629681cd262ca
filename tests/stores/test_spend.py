"""A spend charges groups of buckets of which nobody leases, whole or not at all; what is wrong with one is its own."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Spend, SpendReply
from batchlimit.quota.overrides.overrides import Change
from batchlimit.quota.quota import Quota
from batchlimit.stores import MemoryStore, RedisStore, Store
from batchlimit.stores.client.rulebook import rules_name
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.optional import Spender
from tests.awaiting import rules_of
from tests.servers import Server

TEN = Quota(0.001, 10)
THREE = Quota(0.001, 1000, (Quota(0.002, 10), Quota(0.0005, 100)))


def group(*keys: str, cost: int = 1, quota: Quota = TEN, **rest: Any) -> list[Spend]:
    return [Spend(key, quota, cost, **rest) for key in keys]


def charged(reply: SpendReply) -> list[list[bool] | None]:
    return [None if told is None else [each.is_charged for each in told] for told in reply.groups]


def left(reply: SpendReply) -> list[int | None]:
    """Whole tokens in the first bucket of each group."""
    return [None if told is None else int(min(told[0].levels)) for told in reply.groups]


def ask(need: int, instance: str = "a", seq: int = 1, **rest: Any) -> Ask:
    return Ask(instance, seq, need, need, need, **rest)


@pytest.fixture
def together(store: Store) -> Any:
    """Each store that spends at several buckets in one call."""
    if not isinstance(store, Spender) or not store.spends_together:
        pytest.skip("it spends one key at a time, or its tests are those of tasks")
    return store


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        yield client


def test_a_group_is_charged_whole_or_not_at_all(together: Any) -> None:
    together.spend([group("b", cost=10)])
    reply = together.spend([group("a", "b", "c"), group("c", "d", cost=3), group("a")])
    assert charged(reply) == [[True, False, True], [True, True], [True]]
    assert left(reply) == [10, 7, 9]
    (short,) = [each for each in reply.groups[0] if not each.is_charged]
    assert short.retry_after == pytest.approx(1000.0, abs=1.0)
    assert [together.peek(key, TEN).level for key in "abcd"] == [9, 0, 7, 7]


def test_groups_of_one_call_are_charged_one_after_the_other(together: Any) -> None:
    reply = together.spend([group("a", cost=4), group("a", cost=4), group("a", cost=4), group("a", cost=2)])
    assert charged(reply) == [[True], [True], [False], [True]]
    assert [told[0].epoch for told in reply.groups] == [reply.groups[0][0].epoch] * 4


def test_each_bandwidth_is_charged_and_told(together: Any) -> None:
    reply = together.spend([group("a", cost=3, quota=THREE), group("b")])
    assert [tuple(map(round, told[0].levels)) for told in reply.groups] == [(997, 7, 97), (9,)]
    reply = together.spend([group("a", cost=8, quota=THREE)])
    assert charged(reply) == [[False]]
    assert reply.groups[0][0].retry_after == pytest.approx(500.0, abs=1.0)
    assert tuple(map(round, reply.groups[0][0].levels)) == (997, 7, 97)


def test_a_refusal_says_when_and_keeps_its_word(together: Any) -> None:
    quota = Quota(5.0, 2)
    together.spend([group("a", cost=2, quota=quota)])
    told = together.spend([group("a", quota=quota)]).groups[0][0]
    assert 0.0 < told.retry_after <= 0.2
    tries = (together.spend([group("a", quota=quota)]) for _ in itertools.count())
    assert next(each for each in tries if charged(each) == [[True]])


def test_a_bucket_that_is_leased_of_is_for_take_alone(together: Any) -> None:
    quota = Quota(0.001, 1000)
    assert together.take("b", quota, ask(500)).granted == 500
    reply = together.spend([group("a", quota=quota), group("b", "c", quota=quota), group("c", quota=quota)])
    assert charged(reply) == [[True], None, [True]]
    assert together.peek("b", quota).level == 500
    assert together.peek("c", quota).level == 999


def test_a_bucket_that_was_given_back_whole_is_spent_of_again(together: Any) -> None:
    quota = Quota(0.001, 1000)
    together.take("a", quota, ask(500))
    assert together.give_back("a", quota, GiveBack("a", 2, 500)) == 500
    assert charged(together.spend([group("a", quota=quota)])) == [[True]]
    assert together.peek("a", quota).level == 999


@pytest.mark.parametrize("rank", [{}, {"rules": 7}], ids=str)
def test_a_bucket_that_remembers_a_refund_is_spent_of_and_takes_no_copy_of_the_refund(
    together: Any, rank: dict[str, Any]
) -> None:
    refund = GiveBack("a", 1, 0, refund=1)
    together.spend([group("a", cost=4, quota=THREE, **rank)])
    assert together.give_back("a", THREE, refund) == 1
    reply = together.spend([group("a", cost=3, quota=THREE, **rank), group("a", cost=5, quota=THREE, **rank)])
    assert charged(reply) == [[True], [False]]
    assert tuple(map(round, reply.groups[0][0].levels)) == (994, 4, 94)
    assert together.give_back("a", THREE, refund) == 0
    assert together.peek("a", THREE).level == 4


def test_an_instance_leases_of_what_is_spent_of(together: Any) -> None:
    together.spend([group("a", cost=4)])
    assert together.take("a", TEN, ask(7)).granted == 0
    grant = together.take("a", TEN, ask(2, seq=2))
    assert (grant.granted, grant.level) == (2, 4)


def test_another_quota_is_for_take_which_knows_whose_counts(together: Any) -> None:
    together.spend([group("a")])
    reply = together.spend([group("a", quota=Quota(0.001, 20)), group("b", quota=Quota(0.001, 20))])
    assert charged(reply) == [None, [True]]


@pytest.mark.parametrize("rank", [{"rules": 7}, {"revision": 1}, {"rules": 7, "revision": 1}], ids=str)
def test_the_rank_of_a_quota_counts_as_it_does_for_take(together: Any, rank: dict[str, Any]) -> None:
    """A bucket obeys the quota of the higher rank, whoever asks first, and whether by a spend or by take."""
    other = Quota(0.001, 20)
    assert charged(together.spend([group("a", **rank)])) == [[True]]
    assert charged(together.spend([group("a"), group("a", quota=other)])) == [None, None]
    assert together.take("a", other, ask(1)).quota == TEN
    assert together.take("a", TEN, ask(1, "b", **rank)).quota is None
    assert together.take("b", TEN, ask(0, **rank)).quota is None
    assert together.give_back("b", TEN, GiveBack("a", 2, 0)) == 0
    assert charged(together.spend([group("b", **rank), group("b")])) == [[True], None]


def test_a_young_bucket_begins_as_full_as_it_is_told_and_a_poor_one_is_for_take(together: Any) -> None:
    reply = together.spend([group("a", cost=5, fill=0.5), group("b", cost=6, fill=0.5), group("c", fill=0.0)])
    assert charged(reply) == [[True], None, None]
    assert left(reply)[0] == 0
    assert [together.peek(key, TEN).level for key in "bc"] == [10, 10]  # which are not there


def test_the_revision_of_the_overrides_is_told_if_it_is_looked_for(together: Any) -> None:
    assert together.spend([group("a")], look=True).rules == 0
    is_made, revision = rules_of(together).change(Change(0, {"ann": '{"quota": "1/s"}'}))
    assert is_made
    assert together.spend([group("a")], look=True).rules == revision
    assert together.spend([group("a")]).rules == -1


def test_a_hundred_buckets_go_in_one_call(together: Any) -> None:
    keys = [f"key-{n}" for n in range(100)]
    reply = together.spend([group(key, cost=n % 10 + 1) for n, key in enumerate(keys)], look=True)
    assert left(reply) == [9 - n % 10 for n in range(100)]
    reply = together.spend([group(*keys)])
    assert charged(reply) == [[n % 10 < 9 for n in range(100)]]
    assert [together.peek(key, TEN).level for key in keys] == [9 - n % 10 for n in range(100)]


def damaged(field: str, text: str | None) -> Callable[[Any, str], object]:
    def damage(client: Any, name: str) -> None:
        if text is None:
            client.hdel(name, field)
        else:
            client.hset(name, field, text)

    return damage


def replaced(client: Any, name: str) -> None:
    client.delete(name)
    client.set(name, "something else")


_LARGE: dict[str, Callable[[Any, str], object]] = {
    "of another type": replaced,
    "of another format": damaged("format", "9"),
    "without a level": damaged("level", None),
    "with a level that is no number": damaged("level", "many"),
    "with too few levels": damaged("level", ""),
    "without times": damaged("times", None),
    "with times that are none": damaged("times", "now and then"),
    "without shares": damaged("shares", None),
    "without an epoch": damaged("epoch", None),
    "with an epoch that is none": damaged("epoch", "stone age"),
    "without a quota": damaged("quota", None),
    "that was never heard of": damaged("heard", None),
    "that was heard of at no time": damaged("heard", "never"),
    "with another rank": damaged("rank", "0 0"),
}
_SMALL: dict[str, Callable[[Any, str], object]] = {
    "of another type": replaced,
    "without numbers": damaged("s", None),
    "with numbers that are none": damaged("s", "many"),
    "with too few numbers": damaged("s", "1 2 3 4 5"),
    "without a quota": damaged("q", None),
    "with another quota": damaged("q", "9/1:9@"),
    "without a rank": damaged("h", None),
    "with a rank that is none": damaged("h", "@high"),
    "with another rank": damaged("h", "@0 0 0"),
}


@pytest.mark.parametrize(
    ("is_large", "damage"),
    [pytest.param(True, each, id=f"large {name}") for name, each in _LARGE.items()]
    + [pytest.param(False, each, id=f"small {name}") for name, each in _SMALL.items()],
)
def test_what_is_wrong_with_one_bucket_is_nothing_to_the_others(
    redis_store: RedisStore, client: Any, prefix: str, is_large: bool, damage: Callable[[Any, str], object]
) -> None:
    """Its group is for take, which says what is wrong; nothing of the group is charged, and the bucket stays."""
    rank: dict[str, Any] = {"revision": 1}
    redis_store.spend([group("a", "b", "c", "d", cost=2, **rank)])
    if is_large:
        redis_store.take("c", TEN, Ask("one", 1, need=1, queued=1, want=1, **rank))
        redis_store.give_back("c", TEN, GiveBack("one", 2, tokens=1))
    name = bucket_name(prefix, "c")
    damage(client, name)
    before = client.dump(name)
    reply = redis_store.spend(
        [group("a", **rank), group("b", "c", **rank), group("c", **rank), group("d", **rank)], look=True
    )
    assert charged(reply) == [[True], None, None, [True]]
    assert [redis_store.peek(key, TEN).level for key in "abd"] == [7, 8, 7]
    assert client.dump(name) == before
    assert reply.rules == 0


def test_overrides_that_are_damaged_are_nothing_to_the_buckets(
    redis_store: RedisStore, client: Any, prefix: str
) -> None:
    client.set(rules_name(prefix), "something else")
    reply = redis_store.spend([group("a")], look=True)
    assert (reply.rules, charged(reply)) == (-1, [[True]])


def test_a_bucket_is_small_however_often_it_is_spent_of(redis_store: RedisStore, client: Any, prefix: str) -> None:
    three = Quota(5.0, 2**50, (Quota(100 / 60, 100), Quota(1000 / 86_400, 1000)))
    redis_store.spend([group("a"), group("b", quota=three, rules=2**40, revision=2**40)])
    first = [client.memory_usage(bucket_name(prefix, key)) for key in "ab"]
    for _ in range(30):
        redis_store.spend([group("a"), group("b", quota=three, rules=2**40, revision=2**40)])
    last = [client.memory_usage(bucket_name(prefix, key)) for key in "ab"]
    assert max(last) <= 700
    assert all(after <= before + 64 for before, after in zip(first, last, strict=True))
    assert all(client.object("encoding", bucket_name(prefix, key)) in ("listpack", "ziplist") for key in "ab")


def test_a_bucket_that_is_spent_of_expires_when_it_is_full(redis_store: RedisStore, client: Any, prefix: str) -> None:
    redis_store.spend([group("a", cost=3, quota=Quota(0.1, 10))])
    assert 30_000 <= client.pttl(bucket_name(prefix, "a")) <= 30_000 + 10_000


@pytest.mark.parametrize("store", ["cluster"], indirect=True)
def test_a_cluster_spends_one_key_at_a_time(store: Any) -> None:
    assert isinstance(store, Spender)
    assert not store.spends_together
    for n in range(20):
        assert charged(store.spend([group(f"key-{n}", cost=4)], look=True)) == [[True]]
    assert [left(store.spend([group(f"key-{n}", cost=4)])) for n in range(20)] == [[2]] * 20
    assert store.spend([group("key-0")], look=True).rules == -1


def test_two_keys_that_differ_are_two_buckets_of_a_memory() -> None:
    store = MemoryStore(lambda: 1000.0)
    assert charged(store.spend([group("a", "b", cost=10), group("a"), group("b")])) == [[True, True], [False], [False]]
    assert repr(store) == "<MemoryStore of 2 buckets>"
