"""The contract of every store that keeps overrides: who may change them, what is read, and what the grants tell."""

import threading
import time

import pytest
from fakeredis import FakeRedis

from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.known import UNTOLD
from batchlimit.quota.overrides.overrides import Change
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from batchlimit.stores.client.rulebook import rules_name
from batchlimit.stores.protocols import RuleStore, Store
from tests.awaiting import rules_of

HUNDRED = Quota(0.001, 100)


@pytest.fixture
def rules(store: Store) -> RuleStore:
    return rules_of(store)


def changed(rules: RuleStore, texts: dict[str, str], seen: int | None = None, who: str = "ann") -> tuple[bool, int]:
    return rules.change(Change(rules.read(-1).revision if seen is None else seen, texts, who, "because"))


def texts(rules: RuleStore) -> dict[str, str]:
    fields = rules.read(-1).fields or {}
    return {name.removeprefix("rule:"): text for name, text in fields.items() if name.startswith("rule:")}


def told(store: Store) -> int:
    return store.take("key", HUNDRED, Ask("a", 1, 0, 0, 0)).rules


def test_nobody_has_set_any(rules: RuleStore) -> None:
    published = rules.read(-1)
    assert (published.revision, published.fields) == (0, {})
    assert rules.read(0).fields is None
    assert rules.log(9) == []


def test_a_change_is_read_and_what_is_known_is_not_read_again(rules: RuleStore) -> None:
    done, revision = changed(rules, {"search:*": "one", "löwe 🦁": "two"})
    assert done
    published = rules.read(0)
    assert published.revision == revision
    assert published.fields == {"revision": str(revision), "form": "1", "rule:search:*": "one", "rule:löwe 🦁": "two"}
    assert abs(published.now - time.time()) < 3600.0
    assert rules.read(revision).fields is None


def test_an_empty_text_removes(rules: RuleStore) -> None:
    changed(rules, {"a": "one", "b": "two"})
    changed(rules, {"a": "", "c": "three", "never set": ""})
    assert texts(rules) == {"b": "two", "c": "three"}


def test_a_revision_is_larger_than_the_last_and_than_one_that_was_lost(rules: RuleStore) -> None:
    """It is at least the server's clock, in hundredths of a second: of a hash that was lost it was smaller."""
    revisions = [changed(rules, {"a": f"{n}"})[1] for n in range(5)]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > 170_000_000_000


def test_a_change_by_somebody_who_saw_another_revision_is_not_made(rules: RuleStore) -> None:
    _, seen = changed(rules, {"a": "one"})
    assert changed(rules, {"a": "two"}, seen - 1) == (False, seen)
    assert changed(rules, {"a": "two"}, 0) == (False, seen)
    assert texts(rules) == {"a": "one"}
    assert changed(rules, {"a": "two"}, seen)[0]


def test_of_operators_who_race_each_change_counts_once(rules: RuleStore) -> None:
    """Each adds one to what it saw, and tries again until nobody came before."""

    def add() -> None:
        for _ in range(5):
            while True:
                published = rules.read(-1)
                number = int((published.fields or {}).get("rule:n", "0"))
                if changed(rules, {"n": str(number + 1)}, published.revision)[0]:
                    break

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts(rules) == {"n": "20"}


def test_the_log_tells_who_changed_what_newest_first(rules: RuleStore) -> None:
    changed(rules, {"a": "one"})
    _, revision = changed(rules, {"a": "two", "b": "three"}, who="bob")
    last = [(each.name, each.old, each.new, each.who, each.why) for each in rules.log(3)]
    assert last == [
        ("b", "", "three", "bob", "because"),
        ("a", "one", "two", "bob", "because"),
        ("a", "", "one", "ann", "because"),
    ]
    assert {each.revision for each in rules.log(2)} == {revision}
    assert len(rules.log(1)) == 1


def test_a_grant_tells_the_revision_unless_the_rules_are_at_another_node(store: Store, rules: RuleStore) -> None:
    before = told(store)
    _, revision = changed(rules, {"a": "one"})
    assert (before, told(store)) in [(0, revision), (UNTOLD, UNTOLD)]


@pytest.mark.parametrize("rubbish", ["seven", "", "1e400"])
def test_a_bucket_serves_on_whatever_stands_in_place_of_the_rules(rubbish: str) -> None:
    client = FakeRedis()
    store = RedisStore(client)
    client.set(rules_name("batchlimit"), rubbish)
    assert told(store) == UNTOLD
    with pytest.raises(BucketUnavailable):
        store.rules.read(7)
    client.delete(rules_name("batchlimit"))
    client.hset(rules_name("batchlimit"), "revision", rubbish)
    assert store.take("key", HUNDRED, Ask("a", 2, 5, 5, 5)).granted == 5
