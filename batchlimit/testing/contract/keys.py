"""Keys, and the end of a store."""

from batchlimit.bucket.messages import Level
from batchlimit.quota.key import LONGEST_KEY
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, Instance

_TEXTS = (
    "a",
    "löwe",
    "🦁",
    "{a}",
    "}{",
    "{}",
    "with space",
    "line\nfeed",
    "nul\0",
    "*",
    "a:b",
    "%s",
    "x" * (LONGEST_KEY - 1),
    "é" * (LONGEST_KEY // 2 - 1),
)


def any_text_is_a_key(store: Store) -> None:
    for key in _TEXTS:
        instance = Instance(store, key=key)
        instance.spend(60)
        assert instance.peek().level == 40, ascii(key[:12])
        assert store.peek(key + "X", HUNDRED).level == 100, ascii(key[:12])


def any_text_names_a_instance(store: Store) -> None:
    for i, name in enumerate(["a b", "{}", "h:x", "löwe", "%d", "level", "config"], start=1):
        instance = Instance(store, name=name)
        instance.take(1)
        assert instance.peek() == Level(level=100 - i, outstanding=i, active_instances=i)


def a_store_says_where_it_is(store: Store) -> None:
    assert store.address


def a_store_closes_twice(store: Store) -> None:
    store.take(KEY, HUNDRED, Instance(store).ask(1))
    store.close()
    store.close()
