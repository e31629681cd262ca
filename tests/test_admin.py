"""What operators do, alone and at the same time."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchlimit import FailurePolicy, Quota, RateLimiter
from batchlimit.admin import Admin, AsyncAdmin, AsyncBuckets, Buckets
from batchlimit.batching import FixedBatch
from batchlimit.errors import RulesChanged
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Change
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory_parts import MemoryRules
from tests.servers import Server
from tests.sync.stage import Clock


class Raced(MemoryRules):
    """Somebody else makes a change just before each of ours, as long as there are some."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.others: list[dict[str, str]] = []
        self.whole = 0
        """How often all overrides were read."""

    def read(self, known: int) -> Published:
        found = super().read(known)
        self.whole += found.fields is not None
        return found

    def change(self, change: Change) -> tuple[bool, int]:
        if self.others:
            super().change(Change(self.revision, self.others.pop(), "bob"))
        return super().change(change)


@pytest.fixture
def rules(clock: Clock) -> Raced:
    return Raced(clock)


@pytest.fixture
def admin(rules: Raced, clock: Clock) -> Admin:
    store = MemoryStore(clock)
    store.rules = rules
    return Admin(store, who="ann")


def names(admin: Admin) -> list[str]:
    return sorted(each.name for each in admin.overrides())


def test_what_is_set_stands_there_until_it_is_unset(admin: Admin) -> None:
    made = admin.set("search:*", "20/s", until=timedelta(hours=1), why="slow index")
    assert [*admin.overrides()] == [made]
    assert (made.quota, made.who, made.why) == (Quota(20.0), "ann", "slow index")
    assert made.until == pytest.approx(made.at + 3600.0, abs=0.01)
    assert admin.unset("search:*", "never set", why="fast again") == ("search:*",)
    assert names(admin) == []


def test_what_is_open_has_no_quota_and_a_time(admin: Admin) -> None:
    made = admin.open("search:*", "1h", why="an incident")
    assert [*admin.overrides()] == [made]
    assert (made.quota, made.said, str(made)) == (None, "open", "search:* open (an incident)")
    assert made.until == pytest.approx(made.at + 3600.0, abs=0.01)


def test_a_trial_does_not_replace_what_counts_and_is_promoted_by_the_same_name(admin: Admin) -> None:
    admin.set("search:*", "20/s")
    with pytest.raises(ValueError, match="is in force: remove it"):
        admin.set("search:*", "10/s", mode="shadow")
    admin.set("search:?*", "10/s", mode="shadow")
    found = admin.overrides()
    counts, trial = found.find("search:ann", admin.clock()), found.trial("search:ann", admin.clock())
    assert [str(counts), str(trial)] == ["search:* 20/s", "search:?* trial of 10/s"]
    admin.set("search:?*", "10/s")
    assert str(admin.overrides().find("search:ann", admin.clock())) == "search:?* 10/s"
    assert admin.overrides().trial("search:ann", admin.clock()) is None


@pytest.mark.parametrize(("quota", "mode"), [(None, "enforce"), ("5/s", "open"), ("5/s", "loose"), (None, "loose")])
def test_a_mode_and_a_quota_that_do_not_fit_are_refused(admin: Admin, quota: str | None, mode: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        admin.set("ann", quota, mode=mode)
    assert admin.overrides().revision == 0


def test_weight_and_failure_policy_count_until_they_end(admin: Admin) -> None:
    made = admin.set("search:*", weight=3, on_failure="open", until="1h")
    assert (made.quota, made.weight, made.on_failure) == (None, 3, FailurePolicy.open())
    assert [*admin.overrides()] == [made]
    assert admin.set("search:*", "5/s", on_failure=FailurePolicy.local(4)).said == "5/s, on_failure local:4"


def test_a_bucket_that_is_filled_serves_a_limiter_again_and_what_it_holds_stays(admin: Admin, clock: Clock) -> None:
    limiter = RateLimiter(admin.store, "100/hour", sizer=FixedBatch(40), clock=clock)
    assert sum(limiter.try_acquire("ann") for _ in range(300)) == 100
    assert admin.buckets.refill("ann", why="our mistake") == (0.0,)
    clock.now += 0.5
    assert sum(limiter.try_acquire("ann") for _ in range(300)) == 100
    assert admin.buckets.clear("ann") is not None
    assert admin.buckets.clear("never used") is None
    assert [(each.name, each.old, each.new) for each in admin.history()] == [
        ("never used", "none", "cleared"),
        ("ann", "0.0 tokens", "cleared"),
        ("ann", "0.0 tokens", "refilled"),
    ]
    limiter.close()


@pytest.mark.parametrize("name", ["", "search:*", 7])
def test_buckets_are_filled_one_by_one(admin: Admin, name: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        admin.buckets.refill(name)
    assert admin.history() == []


def test_an_override_replaces_the_one_of_its_name(admin: Admin) -> None:
    admin.set("ann", "20/s", until="1h")
    admin.set("ann", Quota(30.0))
    assert [(str(each.quota), each.until) for each in admin.overrides()] == [("30/s", None)]


def test_the_history_tells_of_each_change(admin: Admin) -> None:
    admin.set("ann", "20/s", why="one")
    admin.set("ann", "30/s", why="two")
    admin.unset("ann", why="three")
    assert [(each.why, bool(each.old), bool(each.new)) for each in admin.history()] == [
        ("three", True, False),
        ("two", True, True),
        ("one", False, True),
    ]
    assert len(admin.history(1)) == 1
    for wrong in (0, -1, "1"):
        with pytest.raises((ValueError, TypeError), match="limit must be"):
            admin.history(wrong)  # type: ignore[arg-type]


def test_to_unset_what_is_not_set_only_makes_a_revision_for_processes_that_obey_what_was_lost(admin: Admin) -> None:
    assert admin.unset("ann") == ()
    assert (len(admin.overrides()), admin.overrides().revision > 0) == (0, True)


def test_to_unset_what_is_not_set_beside_others_changes_nothing(admin: Admin) -> None:
    admin.set("bob", "20/s")
    before = admin.overrides().revision, admin.history()
    assert (admin.unset("ann"), admin.overrides().revision, admin.history()) == ((), *before)


def test_overrides_that_have_ended_leave_with_the_next_change(admin: Admin, clock: Clock) -> None:
    admin.set("ann", "20/s", until="1s")
    clock.now += 2.0
    assert names(admin) == ["ann"]
    admin.set("bob", "20/s")
    assert names(admin) == ["bob"]


def test_two_operators_who_change_different_overrides_both_succeed(admin: Admin, rules: Raced) -> None:
    rules.others = [{"carl": Override("carl", Quota(1.0)).encode()}, {"dora": Override("dora", Quota(1.0)).encode()}]
    admin.set("ann", "20/s")
    assert names(admin) == ["ann", "carl", "dora"]


def test_an_operator_is_told_that_another_changed_the_same_override(admin: Admin, rules: Raced) -> None:
    rules.others = [{"ann": Override("ann", Quota(7.0), who="bob").encode()}]
    with pytest.raises(RulesChanged, match="it is ann 7/s by bob now"):
        admin.set("ann", "20/s")
    rules.others = [{"ann": ""}]
    with pytest.raises(RulesChanged, match="it was removed"):
        admin.set("ann", "20/s")
    assert names(admin) == []


def test_two_operators_who_remove_the_same_override_both_succeed(admin: Admin, rules: Raced) -> None:
    admin.set("ann", "20/s")
    rules.others = [{"ann": ""}]
    assert admin.unset("ann") == (), "the other one did it"
    assert names(admin) == []


def test_an_operator_gives_up_against_changes_without_end(admin: Admin, rules: Raced) -> None:
    rules.others = [{"bob": Override("bob", Quota(float(n))).encode()} for n in range(1, 30)]
    with pytest.raises(RulesChanged, match="nothing was changed"):
        admin.set("ann", "20/s")


@pytest.mark.parametrize(
    ("name", "quota", "rest", "error"),
    [
        ("", "20/s", {}, ValueError),
        (7, "20/s", {}, TypeError),
        ("ann", "20/fortnight", {}, ValueError),
        ("ann", 20, {}, TypeError),
        ("ann", "20/s", {"until": "yesterday"}, ValueError),
        ("ann", "20/s", {"until": datetime(2020, 1, 1, tzinfo=UTC)}, ValueError),
        ("ann", "20/s", {"why": "two\nlines"}, ValueError),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_set(
    admin: Admin, name: Any, quota: Any, rest: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.set(name, quota, **rest)
    assert admin.overrides().revision == 0


def test_what_cannot_be_read_is_not_changed(admin: Admin, rules: Raced) -> None:
    admin.set("ann", "20/s")
    rules.change(Change(rules.revision, {"ann": "garbage"}))
    with pytest.raises(ValueError, match="cannot be read"):
        admin.set("bob", "20/s")


def test_many_are_set_in_one_change_and_those_that_stand_there_stay(admin: Admin, rules: Raced) -> None:
    before = admin.set("bob", "20/s", until="1h", why="slow")
    wanted: dict[str, Any] = {"ann": "5/s", "bob": {"quota": "20/s", "until": "1h", "why": "slow"}}
    wanted["export:*"] = {"mode": "open", "why": "an incident"}
    made = admin.apply(wanted, why="the file")
    assert [str(each) for each in made.set] == ["ann 5/s (the file)", "export:* open (an incident)"]
    assert (made.removed, made.before, made.unchanged) == ((), {}, 1)
    assert admin.overrides().by_name["bob"] == before
    assert {each.revision for each in admin.history(2)} == {rules.revision}, "one change"
    revision = rules.revision
    assert (admin.apply(wanted, why="the file").unchanged, rules.revision) == (3, revision)


def test_what_a_file_does_not_name_leaves_with_prune_alone(admin: Admin) -> None:
    admin.apply({"ann": "5/s", "bob": "6/s"})
    assert admin.apply({"ann": "7/s"}).removed == ()
    made = admin.apply({"ann": "8/s"}, prune=True)
    assert [str(each) for each in [*made.set, *made.removed, made.before["ann"]]] == ["ann 8/s", "bob 6/s", "ann 7/s"]
    assert names(admin) == ["ann"]
    assert names(admin) == ["ann"] == [each.name for each in admin.apply({}, prune=True, dry_run=True).removed]


def test_many_come_by_name(admin: Admin) -> None:
    with pytest.raises(TypeError, match=r"a mapping by name, not as \['ann'\]"):
        admin.apply(["ann"])  # type: ignore[arg-type]


def test_a_dry_run_of_many_changes_nothing(admin: Admin) -> None:
    admin.set("bob", "6/s")
    made = admin.apply({"ann": "5/s"}, prune=True, dry_run=True)
    assert ([each.name for each in made.set], [each.name for each in made.removed]) == (["ann"], ["bob"])
    assert names(admin) == ["bob"]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"ann": "5/fortnight"}, "'ann': "),
        (
            {"ann": {"quota": "5/s", "untill": "1h"}},
            "'ann': an override has no field 'untill': there are quota, mode, weight",
        ),
        ({"ann": {}}, "'ann': nothing would change"),
        ({"ann": 5}, "'ann': an override needs a Quota"),
        ({"bob": {"quota": "1/s", "mode": "shadow"}}, "bob 6/s is in force"),
        ({str(number): "1/s" for number in range(10_000)}, "there would be 10002 overrides"),
    ],
)
def test_of_many_none_is_set_if_one_cannot_be(admin: Admin, wanted: dict[str, Any], told: str) -> None:
    admin.set("bob", "6/s")
    with pytest.raises((ValueError, TypeError), match=told):
        admin.apply({"ann": "5/s"} | wanted)
    assert names(admin) == ["bob"]


def test_what_nobody_else_changed_is_not_read_again(admin: Admin, rules: Raced) -> None:
    admin.set("user:0", "5/s")
    rules.whole = 0
    for number in range(1, 50):
        admin.set(f"user:{number}", "5/s")
    assert (rules.whole, len(names(admin)), admin.unset("user:1"), rules.whole) == (0, 50, ("user:1",), 0)
    Admin(admin.store).set("bob", "6/s")
    assert ("bob" in names(admin), len(names(admin)), rules.whole) == (True, 50, 2)


def test_a_store_without_overrides_is_refused() -> None:
    store: Any = object()
    with pytest.raises(TypeError, match="keeps no overrides"):
        Admin(store)


def test_an_admin_for_tasks_does_the_same(valkey: Server, prefix: str) -> None:
    async def work() -> tuple[list[str], list[str]]:
        async with AsyncAdmin.from_url(valkey.url, prefix=prefix, who="ann") as admin:
            assert (await admin.plan("ann", "20/s", why="a trial")).override.why == "a trial"
            made = await admin.set("ann", "20/s", until="1h")
            assert made.until is not None
            assert made.until > await admin.clock()
            assert await admin.buckets.get("ann") is None
            assert await admin.buckets.refill("bob") is await admin.buckets.clear("bob") is None
            names = [each.name for each in await admin.overrides()]
            await admin.unset("ann")
            assert [each.name for each in (await admin.apply({"bob": "5/s"}, dry_run=True)).set] == ["bob"]
            return names, [each.who for each in await admin.history()]

    assert asyncio.run(work()) == (["ann"], ["ann"] * 4)


def test_of_two_holds_of_one_name_the_one_that_ends_later_counts(admin: Admin) -> None:
    hour = admin.hold("search:*", "1h", why="slow")
    assert admin.hold("search:*", "1m") == hour
    assert [*admin.overrides()] == [hour]
    assert len(admin.history()) == 1
    longer = admin.hold("search:*", "2h")
    assert [*admin.overrides()] == [longer]
    for_ever = admin.hold("search:*", None)
    assert admin.hold("search:*", "9h") == for_ever
    assert admin.set("search:*", "0/s", until="1m").until is not None, "a quota replaces it"


@pytest.mark.parametrize("before", ["open", "a quota", "ended"])
def test_a_hold_replaces_all_but_a_longer_hold(admin: Admin, clock: Clock, before: str) -> None:
    if before == "open":
        admin.open("search:*", "1h")
    elif before == "a quota":
        admin.set("search:*", "20/s")
    else:
        admin.hold("search:*", "1s")
        clock.pass_by(2.0)
    held = admin.hold("search:*", "1m")
    assert [*admin.overrides()] == [held]
    assert held.is_hold


@pytest.mark.parametrize("how", ["hold", "open", "set"])
def test_what_had_no_end_counts_again_when_what_was_put_over_it_has_ended_or_is_removed(
    admin: Admin, clock: Clock, how: str
) -> None:
    put: Callable[[], Override] = {
        "hold": lambda: admin.hold("ann", "2s"),
        "open": lambda: admin.open("ann", "2s"),
        "set": lambda: admin.set("ann", "5/s", until="2s"),
    }[how]
    before = admin.set("ann", "600/hour", why="vip")
    assert put() == admin.overrides().find("ann", admin.clock())
    assert admin.hold("ann", "3s").covered == before
    clock.pass_by(3.5)
    assert admin.overrides().find("ann", admin.clock()) == before
    admin.set("bob", "1/s")
    assert admin.overrides().by_name["ann"] == before, "what has ended left, and not what it covered"
    put()
    assert (admin.unset("ann"), admin.overrides().by_name["ann"]) == (("ann",), before)
    put()
    clock.pass_by(3.5)
    assert (admin.unset("ann"), names(admin)) == (("ann",), ["bob"]), "it had ended: what counted is removed"


def test_a_file_sees_what_counts_below_what_has_ended(admin: Admin, clock: Clock) -> None:
    admin.set("ann", "5/s")
    admin.hold("ann", "1s")
    clock.pass_by(2.0)
    assert admin.apply({"ann": "5/s"}).unchanged == 1
    made = admin.apply({"ann": {"quota": "6/s", "until": "1h"}})
    assert (str(made.set[0].covered), str(made.before["ann"])) == ("ann 5/s", "ann 5/s")
    with pytest.raises(ValueError, match="is in force"):
        admin.set("ann", "7/s", mode="shadow")
    admin.apply({}, prune=True)
    assert names(admin) == []


@pytest.mark.parametrize(("kind", "others"), [(Admin, AsyncAdmin), (Buckets, AsyncBuckets)])
def test_a_class_has_few_methods_and_its_twin_has_the_same(kind: type, others: type) -> None:
    mine = {name for name in vars(kind) if not name.startswith("_")}
    assert len(mine) <= 11
    twin = {"close" if name == "aclose" else name for name in vars(others) if not name.startswith("_")}
    assert twin == mine
