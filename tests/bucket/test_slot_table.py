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


STORIES = {
    # who asks for how many slots in all, with what: how many were granted so far, and how many may be kept (-1: all);
    # who is told of how many, and may keep how many. "+1": a second later
    "a slot that is returned goes to the one who waits, and that is told": """
        a 4: 4 -1; b 1 waiting=1: 0 -1, a 4 2; a 3 returned=1: 4 -1, b 1 -1
    """,
    "one who does not wait gets nothing later": """
        a 4: 4 -1; b 1: 0 -1; a 0 returned=4: 4 -1
    """,
    "of those who wait the one with the fewest slots is next, then the one who waits longest": """
        a 3: 3 -1; b 1: 1 -1; b 3 waiting=2: 1 -1, a 3 2; +0.000001; c 1 waiting=1: 0 0, a 3 1; +0.000001;
        d 1 waiting=1: 0 0; a 2 returned=1: 3 1, c 1 1; a 1 returned=2: 3 1, d 1 1
    """,
    "weights divide the slots": """
        x 8 limit=8: 8 -1; a 8 waiting=8 weight=3 limit=8: 0 -1, x 8 2; b 8 waiting=8 limit=8: 0 0, x 8 1;
        x 0 returned=8 limit=8: 8 0, a 6 6, b 2 2
    """,
    "slots of a silent instance are free when its lease is over, and no sooner": """
        a 4: 4 -1; +9.999999; b 1: 0 -1; +0.000001; b 1: 1 -1
    """,
    "each ask renews the lease of all slots": """
        a 4: 4 -1; +6; b 1: 0 -1; a 4: 4 -1; +6; b 1: 0 -1; a 4: 4 -1; +6; b 1: 0 -1
    """,
    "an ask that is repeated gets what it got": """
        a 2: 2 -1; a 2: 2 -1; a 1 returned=1: 2 -1; a 1 returned=1: 2 -1
    """,
    "the lowest limit counts while the instance that names it has a lease": """
        old 1 limit=2: 1 -1; new 4 limit=8: 1 -1; old 0 returned=1 limit=2: 1 -1; new 8 limit=8: 8 -1
    """,
    "after the limit fell everybody is told to keep a share": """
        a 4 limit=8: 4 -1; b 4 limit=8: 4 -1; a 4 limit=2: 4 1, b 4 1
    """,
    "with as many slots as instances nobody gives up a fair share": """
        a 2: 2 -1; b 2: 2 -1; a 9 waiting=7: 2 -1; b 9 waiting=7: 2 2; a 9 waiting=7: 2 2
    """,
    "with fewer slots than instances they go round": """
        a 1: 1 -1; b 1: 1 -1; c 1: 1 -1; d 1: 1 -1; e 1 waiting=1: 0 -1, a 1 0, b 1 0, c 1 0, d 1 0;
        a 2 waiting=1: 1 0
    """,
    "extra slots are a part of what is free": """
        a 1 extra=9: 2 -1; b 1 extra=9: 1 -1
    """,
    "who holds idle slots is told once that others wait": """
        a 4 idle=2: 4 -1; b 1 waiting=1: 0 -1, a 4 2; b 1 waiting=1: 0 -1
    """,
    "slots that are left over go round once in a third of a lease": """
        a 2 limit=5: 2 -1; b 2 limit=5: 2 -1; c 2 limit=5: 1 -1; a 9 waiting=5 limit=5: 2 -1;
        b 9 waiting=5 limit=5: 2 2; c 9 waiting=5 limit=5: 1 1; +3.333333; c 9 waiting=5 limit=5: 1 1; +0.000001;
        c 9 waiting=5 limit=5: 1 1, a 2 1, b 2 1; a 9 returned=1 waiting=5 limit=5: 2 1, c 2 2
    """,
    "of two that hold nothing the lighter one is served when it has waited longer by as much": """
        x 4: 4 -1; light 1 waiting=1: 0 -1, x 4 2; +2.999999; heavy 1 waiting=1 weight=4: 0 0, x 4 1; +1;
        x 3 returned=1: 4 1, heavy 1 1
    """,
    "one that has waited for hours is before those of more weight that have not": """
        x 4 lease=36000: 4 -1; light 1 waiting=1 lease=36000: 0 -1, x 4 2; +20000;
        heavy 1 waiting=1 weight=1000: 0 0, x 4 0; +1; x 3 returned=1: 4 0, light 1 0
    """,
    "nobody has to go below its fair part for one who has its own": """
        c 1 weight=2: 1 -1; a 2: 2 -1; b 2 waiting=1: 1 -1; +4; b 2 held=1 waiting=1: 1 -1
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_who_gets_a_slot_and_who_is_told(story: str) -> None:
    scene = Scene()
    for step in map(str.strip, STORIES[story].split(";")):
        if step[0] == "+":
            scene.now += round(float(step) * SECOND)
            continue
        asked, told = step.split(": ")
        name, target, *more = asked.split()
        options = {field: int(value) for field, value in (each.split("=") for each in more)}
        options |= {"lease": options["lease"] * SECOND} if "lease" in options else {}
        found = ["{} {}".format(*scene.lend(name, int(target), **options))]
        found += [f"{each.instance.removesuffix('.1')} {each.granted} {each.keep}" for each in scene.pushes]
        assert ", ".join(found) == told, step


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
