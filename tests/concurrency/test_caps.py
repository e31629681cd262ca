"""A partition that has a cap: what it may have at most, whatever is free."""

import pickle
from collections.abc import Callable
from copy import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, Partitions, Queue
from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.statistics import Counts
from batchlimit.laws import Fixed
from tests.concurrency.test_gate import SECOND, Scene, play


def test_a_capped_partition_leaves_free_what_is_above_its_cap() -> None:
    play(
        Scene(10, Partitions({}, caps={"batch": 0.2})),
        "come a batch: A; come b batch: AB; come c batch: partition; come d: ABD; go a: BD; come e batch: BDE",
    )


@pytest.mark.parametrize("strict", [False, True])
def test_a_waiter_of_a_full_partition_holds_up_nobody_else(strict: bool) -> None:
    play(
        Scene(2, Partitions({"live": 0.5}, caps={"batch": 0.5}, strict=strict), Queue(5)),
        "come a batch: A; come b batch: Ab; come c live: ACb; go c: Ab; come d live: ADb; go a: DB",
    )


def test_calls_under_no_name_have_a_cap_together() -> None:
    play(Scene(4, Partitions({"live": 0.5}, caps={"": 0.25})), "come a: A; come b unknown: partition; come c live: AC")


@pytest.mark.parametrize(("share", "strict"), [(0.0, False), (0.07, False), (0.07, True)])
def test_a_cap_is_rounded_down_but_not_below_the_share_nor_one(share: float, strict: bool) -> None:
    for limit in range(1, 101):
        gate = Gate(limit, Partitions({"it": share}, caps={"it": 0.07}, strict=strict))
        it = gate.partition("it")
        assert it.most == max(int(limit * Fraction(7, 100)), it.guaranteed, 1), limit


def test_a_cap_of_nothing_lets_nobody_in() -> None:
    """Nor into the queue: it would wait in vain."""
    for queue in (Queue(length=0), Queue(5)):
        assert Scene(4, Partitions({}, caps={"batch": 0}), queue).come("a", "batch") == "partition"


@pytest.mark.parametrize(
    ("limit", "caps", "ahead", "after"),
    [
        (100, {"batch": 0.02}, 0, 2.0),
        (100, {"batch": 0.02}, 1, 4.0),
        (2, {"batch": 0.5}, 0, 4.0),
        (4, {"batch": 0}, 0, None),
    ],
    ids=["of its cap", "behind one who waits", "of its cap at the limit", "never"],
)
def test_a_refusal_at_a_cap_says_when_a_place_under_the_cap_is_free(
    limit: int, caps: dict[str, float], ahead: int, after: float | None
) -> None:
    """Calls take 4 s. It said 0.04 s under a cap of 2 of 100, by the whole limit, and 1 s where nobody may come in."""
    scene = Scene(limit, Partitions({}, caps=caps), Queue(9))
    batch = scene.gate.partition("batch")
    for each in range(batch.most or 0):
        scene.come(f"{each}", "batch")
    scene.come("other")
    for each in range(ahead):
        scene.come(f"waiting {each}", "batch")
    counts = Counts()
    counts.last_rtt_ns = 4 * SECOND
    assert counts.refusal(scene.gate, batch, scene.gate.reason, scene.now).retry_after == after


@given(
    st.integers(1, 20),
    st.booleans(),
    st.lists(st.sampled_from(["+batch", "+live", "+", "-", "*1", "*7", "*15"]), max_size=60),
)
def test_no_partition_enters_above_its_cap(limit: int, strict: bool, story: list[str]) -> None:
    gate = Gate(limit, Partitions({"live": 0.4}, caps={"batch": 0.3, "live": 0.6}, strict=strict))
    busy: list[str] = []
    for step in story:
        if step.startswith("+"):
            place = gate.partition(step[1:])
            if gate.enter(place, 0):
                busy.append(step[1:])
                assert place.most is None or place.busy <= place.most
        elif step == "-" and busy:
            gate.leave(gate.partition(busy.pop(0)), 0)
        elif step.startswith("*"):
            gate.resize(int(step[1:]), 0)


def test_a_limiter_refuses_above_a_cap_and_says_so() -> None:
    with ConcurrencyLimiter(Fixed(10), partitions=Partitions({}, caps={"batch": 0.1})) as limiter:
        with limiter.acquire("batch"):
            with pytest.raises(ConcurrencyLimited) as refused:
                limiter.acquire("batch")
            limiter.acquire("other").success()
        assert (refused.value.reason, refused.value.retry_after) == ("partition", None), "no call has ended yet"
        seen = limiter.statistics()
        assert (seen.partitions["batch"].most, seen.partitions[""].most, seen.unknown) == (1, None, 1)


@pytest.mark.parametrize("name", ["shares", "caps"])
@pytest.mark.parametrize("travel", [lambda each: each, copy, lambda each: pickle.loads(pickle.dumps(each))])
def test_what_was_checked_cannot_be_changed_afterwards(name: str, travel: Callable[[Partitions], Partitions]) -> None:
    partitions: Any = travel(Partitions({"live": 0.5}, caps={"batch": 0.5}))
    with pytest.raises(TypeError, match="does not support item assignment"):
        getattr(partitions, name)["live"] = 2.0
