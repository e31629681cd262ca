"""Tables of (time, ask, expected): who gets the slots of a limit, what is answered, and when slots are free again."""

from collections import Counter
from copy import deepcopy

import pytest

from batchlimit.bucket.fair_share import ACTIVE
from batchlimit.bucket.slot_table import TICK, SlotAsk, SlotPush, SlotTable
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def ask(name: str, target: int = 0, **more: int) -> SlotAsk:
    return SlotAsk(**{"instance": f"{name}.1", "limit": 4, "lease": 10 * SECOND, "target": target, **more})  # type: ignore[arg-type]


class Scene:
    """A table whose clock a test moves."""

    def __init__(self) -> None:
        self.table, self.now = SlotTable(), START
        self.pushes: list[SlotPush] = []

    def lend(self, name: str, target: int = 0, **more: int) -> tuple[int, int]:
        """What an instance is told: how many slots it was granted so far, and how many it may keep."""
        reply, self.pushes = self.table.lend(ask(name, target, **more), self.now)
        assert "limit" in more or self.table.lent <= self.table.limit
        return reply.granted, reply.keep


def test_a_slot_that_is_returned_goes_to_the_one_who_waits_and_that_is_told() -> None:
    scene = Scene()
    scene.lend("a", 4)
    assert scene.lend("b", 1, waiting=1) == (0, -1)
    assert scene.pushes == [SlotPush("a.1", 4, scene.table.token, 2)]
    scene.lend("a", 3, returned=1)
    assert scene.pushes == [SlotPush("b.1", 1, scene.table.token, -1)]


def test_one_who_does_not_wait_gets_nothing_later() -> None:
    scene = Scene()
    scene.lend("a", 4)
    scene.lend("b", 1)
    scene.lend("a", 0, returned=4)
    assert scene.pushes == []


def test_of_those_who_wait_the_one_with_the_fewest_slots_is_next_then_the_one_who_waits_longest() -> None:
    scene = Scene()
    scene.lend("a", 3)
    scene.lend("b", 1)
    scene.lend("b", 3, waiting=2)
    scene.now += 1
    scene.lend("c", 1, waiting=1)
    scene.now += 1
    scene.lend("d", 1, waiting=1)
    scene.lend("a", 2, returned=1)
    assert [each.instance for each in scene.pushes] == ["c.1"]
    scene.lend("a", 1, returned=2)
    assert [each.instance for each in scene.pushes if each.granted] == ["d.1"]


def test_weights_divide_the_slots() -> None:
    scene = Scene()
    scene.lend("x", 8, limit=8)
    scene.lend("a", 8, waiting=8, weight=3, limit=8)
    scene.lend("b", 8, waiting=8, limit=8)
    scene.lend("x", 0, returned=8, limit=8)
    assert {each.instance: each.granted for each in scene.pushes} == {"a.1": 6, "b.1": 2}


def test_slots_of_an_instance_that_is_silent_are_free_when_its_lease_is_over_and_no_sooner() -> None:
    scene = Scene()
    scene.lend("a", 4)
    scene.now += 10 * SECOND - 1
    assert scene.lend("b", 1)[0] == 0
    scene.now += 1
    assert scene.lend("b", 1)[0] == 1


def test_each_ask_renews_the_lease_of_all_slots() -> None:
    scene = Scene()
    for _ in range(5):
        scene.lend("a", 4)
        scene.now += 6 * SECOND
        assert scene.lend("b", 1)[0] == 0


def test_an_ask_that_is_repeated_gets_what_it_got() -> None:
    scene = Scene()
    assert [scene.lend("a", 2)[0] for _ in range(3)] == [2, 2, 2]
    assert [scene.lend("a", 1, returned=1)[0] for _ in range(3)] == [2, 2, 2]
    assert scene.table.lent == 1


def test_an_ask_that_was_overtaken_returns_no_slot_twice_and_takes_none_back() -> None:
    scene = Scene()
    scene.lend("a", 3)
    scene.lend("a", 1, returned=2)
    scene.lend("a", 1, returned=1)
    assert scene.table.lent == 1


def test_what_was_lost_is_claimed_as_far_as_there_is_room() -> None:
    scene = Scene()
    assert scene.lend("a", 3, returned=7, held=3)[0] == 10
    reply, _ = scene.table.lend(ask("b", 3, returned=0, held=3), scene.now)
    assert (reply.granted, reply.fresh, reply.lent) == (1, True, 4)


def test_a_store_that_went_back_in_time_gives_what_it_lost_again_as_far_as_there_is_room() -> None:
    scene = Scene()
    scene.lend("a", 1)
    past = deepcopy(scene.table)
    scene.lend("a", 3)
    scene.table = past
    scene.lend("b", 2)
    reply, _ = scene.table.lend(ask("a", 3, held=3), scene.now)
    assert (reply.granted, reply.fresh, reply.lent) == (2, True, 4)


def test_a_token_is_larger_than_those_of_all_leases_that_were_over_before() -> None:
    scene = Scene()
    tokens = []
    for turn in range(6):
        name = "ab"[turn % 2]
        tokens.append(scene.table.lend(ask(name, 4, returned=4 * (turn // 2)), scene.now)[0].token)
        scene.lend(name, 0, returned=4 * (turn // 2 + 1))
    assert tokens == sorted(set(tokens))
    assert tokens[0] >= START // TICK


def test_a_lease_that_is_renewed_has_a_larger_token_than_those_that_were_over_before() -> None:
    scene = Scene()
    scene.lend("a", 1)
    over = scene.table.lend(ask("b", 1), scene.now)[0].token
    scene.lend("b", 0, returned=1)
    assert scene.table.lend(ask("a", 1), scene.now)[0].token > over


def test_after_a_loss_of_data_tokens_go_on_where_a_key_changed_hands_50_000_times_a_second() -> None:
    scene = Scene()
    token = 0
    for turn in range(2000):
        scene.now += 20
        token = scene.table.lend(ask("ab"[turn % 2], 1, returned=turn // 2), scene.now)[0].token
    scene.table, scene.now = SlotTable(), scene.now + 20
    assert scene.table.lend(ask("c", 1), scene.now)[0].token > token


def test_slots_that_one_ask_hands_out_one_by_one_take_one_token() -> None:
    table = SlotTable()
    first = table.lend(ask("a", 1000, limit=1000), START)[0].token
    table.lend(ask("b", 1000, waiting=1000, limit=1000), START)
    table.lend(ask("c", 1000, waiting=1000, limit=1000), START)
    assert table.lend(ask("a", 0, returned=1000, limit=1000), START)[0].token == first + 3


def test_a_table_is_kept_until_the_clock_has_passed_its_token() -> None:
    scene = Scene()
    scene.table.token = (scene.now + 3_600_000_000) // TICK  # the clock was turned back
    scene.lend("a", 0)
    assert scene.table.expires > scene.table.token * TICK


def test_the_lowest_limit_counts_while_the_instance_that_names_it_has_a_lease() -> None:
    scene = Scene()
    scene.lend("old", 1, limit=2)
    assert scene.lend("new", 4, limit=8)[0] == 1
    scene.lend("old", 0, returned=1, limit=2)
    assert scene.lend("new", 8, limit=8)[0] == 8


def test_after_the_limit_fell_everybody_is_told_to_keep_a_share() -> None:
    scene = Scene()
    scene.lend("a", 4, limit=8)
    scene.lend("b", 4, limit=8)
    assert scene.lend("a", 4, limit=2) == (4, 1)


def test_with_as_many_slots_as_instances_nobody_gives_up_a_fair_share() -> None:
    scene = Scene()
    scene.lend("a", 2)
    scene.lend("b", 2)
    assert scene.lend("a", 9, waiting=7) == (2, -1)
    assert scene.lend("b", 9, waiting=7) == (2, 2)
    assert scene.lend("a", 9, waiting=7) == (2, 2)


def test_with_fewer_slots_than_instances_they_go_round() -> None:
    scene = Scene()
    for name in "abcd":
        scene.lend(name, 1)
    scene.lend("e", 1, waiting=1)
    assert [each.keep for each in scene.pushes] == [0, 0, 0, 0]
    assert scene.lend("a", 2, waiting=1) == (1, 0)


def test_extra_slots_are_a_part_of_what_is_free() -> None:
    scene = Scene()
    assert scene.lend("a", 1, extra=9)[0] == 2
    assert scene.lend("b", 1, extra=9)[0] == 1


def test_who_holds_idle_slots_is_told_once_that_others_wait() -> None:
    scene = Scene()
    scene.lend("a", 4, idle=2)
    scene.lend("b", 1, waiting=1)
    assert [(each.instance, each.keep) for each in scene.pushes] == [("a.1", 2)]
    scene.lend("b", 1, waiting=1)
    assert scene.pushes == []


def turns(limit: int, weights: dict[str, int], rounds: int) -> dict[str, int]:
    """How often each got a slot while all of them want more than there are, and all hold a slot equally long."""
    scene, got, returned = Scene(), Counter[str](), Counter[str]()

    def tell(name: str) -> None:
        target = got[name] - returned[name] + 50
        options = {"weight": weights[name], "limit": limit, "waiting": 50, "returned": returned[name]}
        got[name] = scene.lend(name, target, **options)[0]
        for push in scene.pushes:
            got[push.instance[0]] = push.granted

    for name in weights:
        tell(name)
    for _ in range(rounds):
        scene.now += SECOND // 100
        holders = [name for name in weights if got[name] > returned[name]]
        for name in holders:
            returned[name] = got[name]
        for name in holders:
            tell(name)
    return dict(returned)


def test_slots_that_are_left_over_go_round_once_in_a_third_of_a_lease() -> None:
    scene = Scene()
    for name in "abc":
        scene.lend(name, 2, limit=5)
    for name in "abc":
        scene.lend(name, 9, waiting=5, limit=5)
    scene.now += 10 * SECOND // 3
    assert scene.lend("c", 9, waiting=5, limit=5) == (1, 1)
    assert scene.pushes == []
    scene.now += 1
    scene.lend("c", 9, waiting=5, limit=5)
    assert {each.instance: each.keep for each in scene.pushes} == {"a.1": 1, "b.1": 1}
    scene.lend("a", 9, returned=1, waiting=5, limit=5)
    assert [(each.instance, each.granted) for each in scene.pushes] == [("c.1", 2)]


@pytest.mark.parametrize(("limit", "weights"), [(10, [1, 1, 1, 1]), (7, [1, 1, 1, 1]), (5, [2, 2, 1]), (11, [3, 1, 1])])
def test_with_more_slots_than_instances_each_has_its_part_in_the_long_run(limit: int, weights: list[int]) -> None:
    scene, had = Scene(), Counter[int]()
    told = dict.fromkeys(range(len(weights)), (0, -1))
    returned = Counter[int]()
    for _ in range(600):
        scene.now += SECOND
        for number, (granted, keep) in told.items():
            held = granted - returned[number]
            returned[number] += max(0, held - keep) if keep >= 0 else 0
            had[number] += granted - returned[number]
            options = {"weight": weights[number], "limit": limit, "waiting": 50, "returned": returned[number]}
            told[number] = scene.lend(str(number), granted - returned[number] + 50, **options)
            told |= {int(each.instance[:-2]): (each.granted, each.keep) for each in scene.pushes}
    for number, weight in enumerate(weights):
        assert had[number] / sum(had.values()) == pytest.approx(weight / sum(weights), rel=0.05)


@pytest.mark.parametrize(
    ("limit", "weights"), [(1, {"a": 1, "b": 3}), (1, {"a": 2, "b": 2, "c": 1}), (2, {"a": 1, "b": 2, "c": 3, "d": 4})]
)
def test_with_fewer_slots_than_instances_they_go_round_by_weight(limit: int, weights: dict[str, int]) -> None:
    shares = turns(limit, weights, 1000)
    for name, weight in weights.items():
        assert shares[name] / sum(shares.values()) == pytest.approx(weight / sum(weights.values()), rel=0.3)


def test_with_equal_weights_slots_go_round_in_order() -> None:
    assert turns(1, {"a": 1, "b": 1, "c": 1}, 1000) == {"a": 334, "b": 333, "c": 333}


def test_of_two_that_hold_nothing_the_one_of_less_weight_is_served_when_it_has_waited_longer_by_as_much() -> None:
    scene = Scene()
    scene.lend("x", 4)
    scene.lend("light", 1, waiting=1)
    scene.now += 3 * SECOND - 1
    scene.lend("heavy", 1, waiting=1, weight=4)
    scene.now += SECOND
    scene.lend("x", 3, returned=1)
    assert [each.instance for each in scene.pushes if each.granted] == ["heavy.1"]


def test_one_that_has_waited_for_hours_is_before_those_of_more_weight_that_have_not() -> None:
    scene = Scene()
    scene.lend("x", 4, lease=36_000 * SECOND)
    scene.lend("light", 1, waiting=1, lease=36_000 * SECOND)
    scene.now += 20_000 * SECOND
    scene.lend("heavy", 1, waiting=1, weight=1000)
    scene.now += SECOND
    scene.lend("x", 3, returned=1)
    assert [each.instance for each in scene.pushes if each.granted] == ["light.1"]


def test_nobody_has_to_go_below_its_fair_part_for_one_who_has_its_own() -> None:
    scene = Scene()
    scene.lend("c", 1, weight=2)  # it does not want the other half of its two
    scene.lend("a", 2)
    scene.lend("b", 2, waiting=1)
    scene.now += 4 * SECOND
    scene.lend("b", 2, held=1, waiting=1)
    assert [push.instance for push in scene.pushes] == []


def test_an_instance_whose_lease_is_just_over_is_told_that_its_slots_are_not_known() -> None:
    scene = Scene()
    scene.lend("a", 2)
    for later, is_fresh in ((10 * SECOND - 1, False), (10 * SECOND, True)):
        scene.now += later
        assert scene.table.lend(ask("a", 2), scene.now)[0].fresh == is_fresh


# A bucket forgets instances that are silent, in time


@pytest.mark.parametrize(("known", "now", "is_there"), [(0, 5, False), (5, 5, False), (6, 5, True)])
def test_an_instance_that_has_had_a_refund_has_its_entry_until_the_refund_is_forgotten(
    known: int, now: int, is_there: bool
) -> None:
    table = InstanceTable()
    one = table.enter("a", 0)
    table.weigh(one, 2, 0)
    one.known = known
    table.forget("a", one, now)
    assert ("a" in table.instances, table.active, table.weights) == (is_there, 0, 0)


@pytest.mark.parametrize(
    ("expires", "seen", "is_over"), [(0, 0, True), (ACTIVE, 0, True), (ACTIVE + 1, 0, False), (0, 1, False)], ids=str
)
def test_an_instance_is_active_until_its_lease_is_over_and_it_asked_long_ago(
    expires: int, seen: int, is_over: bool
) -> None:
    assert InstanceEntry(last=0, seen=seen, expires=expires).is_over(ACTIVE) is is_over
