"""The contract of every store that lends slots."""

import threading
from typing import Any

import pytest

from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply
from batchlimit.errors import BucketUnavailable
from batchlimit.shared.listener import Listener
from batchlimit.stores import RedisStore
from tests.depth import depth
from tests.servers import SERVERS
from tests.topologies import TOPOLOGIES

_SERVED = depth(["valkey", "redis-6.2", "cluster"], [*SERVERS, *TOPOLOGIES])
pytestmark = pytest.mark.parametrize("store", ["memory", "fakeredis", *_SERVED], indirect=True)

KEYS = ["gpu", "löwe 🦁 at 4", "long" * 64, "}{"]


def lend(store: Any, name: str, target: int = 0, *, key: str = "gpu", **more: int) -> SlotReply:
    ask: dict[str, Any] = {"instance": f"{name}.1", "limit": 4, "lease": 60_000_000, "target": target, **more}
    reply: SlotReply = store.slots.lend(key, SlotAsk(**ask))
    return reply


def test_slots_are_lent_until_there_are_none(store: Any) -> None:
    replies = [lend(store, name, 2) for name in "abc"]
    assert [reply.granted for reply in replies] == [2, 2, 0]
    assert [reply.lent for reply in replies] == [2, 4, 4]
    assert [reply.instances for reply in replies] == [1, 2, 3]
    assert all(reply.fresh for reply in replies)


def test_keys_do_not_touch_each_other(store: Any) -> None:
    assert [lend(store, "a", 4, key=key).granted for key in KEYS] == [4] * len(KEYS)


def test_an_ask_may_be_repeated(store: Any) -> None:
    assert [lend(store, "a", 3).granted for _ in range(3)] == [3, 3, 3]
    assert [lend(store, "a", 1, returned=2).lent for _ in range(3)] == [1, 1, 1]


def test_tokens_grow_and_do_not_begin_again(store: Any) -> None:
    tokens = []
    for turn in range(5):
        tokens.append(lend(store, "a", 1, returned=turn).token)
        lend(store, "a", 0, returned=turn + 1)
    assert tokens == sorted(set(tokens))


def test_slots_of_a_silent_instance_come_back(store: Any) -> None:
    lend(store, "a", 4, lease=1000)
    while lend(store, "b", 1).granted == 0:
        pass


@pytest.mark.parametrize("key", KEYS)
def test_who_waits_is_told_of_a_release(store: Any, key: str) -> None:
    heard, ready = [], threading.Event()
    told = threading.Event()

    def receive(name: str, push: SlotPush) -> None:
        heard.append((name, push))
        told.set()

    listener = listen(store, "b", receive, ready)
    assert ready.wait(60)
    lend(store, "a", 4, key=key)
    lend(store, "b", 1, key=key, waiting=1)
    lend(store, "a", 3, key=key, returned=1)
    assert told.wait(60)
    (name, push), *more = heard
    assert name == (store.slots.name(key) if hasattr(store.slots, "name") else key)
    assert (push.instance, push.granted, push.keep, more) == ("b.1", 1, -1, [])
    if listener:
        listener.stop()


def test_an_instance_hears_a_knock(store: Any) -> None:
    if not isinstance(store, RedisStore):
        pytest.skip("nothing comes between memory and its listener")
    ready, told = threading.Event(), threading.Event()
    listener = listen(store, "b", lambda name, push: told.set(), ready)
    assert listener
    assert ready.wait(60)
    store.slots.knock("gpu", "b")
    assert told.wait(60)
    listener.stop()


def listen(store: Any, instance: str, receive: Any, ready: threading.Event) -> Listener | None:
    if not hasattr(store.slots, "subscribe"):
        store.slots.listen(instance, receive)
        ready.set()
        return None
    listener = Listener(lambda: store.slots.subscribe(instance), receive, ready.set, lambda: False)
    listener.start()
    return listener


def test_a_key_that_is_no_limit_is_named(store: Any) -> None:
    if not isinstance(store, RedisStore):
        pytest.skip("memory has nothing else")
    lend(store, "a", 1)
    store._ask(store.slots.name("gpu"), ("HSET", store.slots.name("gpu"), "level", "1"))
    with pytest.raises(BucketUnavailable):
        lend(store, "a", 1)


def test_the_state_is_text(store: Any) -> None:
    if not isinstance(store, RedisStore):
        pytest.skip("memory has none")
    reply = lend(store, "a", 3, idle=1)
    name = store.slots.name("gpu")
    (told,) = store._ask(name, ("HGETALL", name))
    pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
    fields = {name.decode(): text.decode() for name, text in pairs}
    assert fields.pop("instance:a.1").split()[0] == "3"
    assert fields == {"limit": "4", "token": str(reply.token)}
