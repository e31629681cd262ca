"""The gate lets callers in, queues them and picks the next: tables of events, and of who is under way then."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Partitions, Queue
from batchlimit.concurrency import Shedding
from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.queue import GateWaiter, Order
from batchlimit.concurrency.statistics import Counts
from tests.depth import depth

SECOND = 1_000_000_000


def woken(change: Any, *args: Any) -> list[GateWaiter]:
    """Make a change by a method of a gate; return who is to be woken then."""
    change(*args)
    found = list(change.__self__.unwoken)
    change.__self__.unwoken.clear()
    return found


def waits() -> GateWaiter:
    return GateWaiter(lambda: None)


class Scene:
    """A gate and the calls at it, by one letter each: upper case under way, lower case waiting."""

    def __init__(self, limit: int, partitions: Partitions | None = None, queue: Queue | None = None) -> None:
        self.gate = Gate(limit, partitions, queue or Queue(length=0))
        self.now = 1000 * SECOND
        self._under_way: dict[str, str] = {}
        self._waiters: dict[str, GateWaiter] = {}

    def come(self, call: str, partition: str = "") -> str:
        """Enter, or line up; return where everybody is then, or why that is refused."""
        place = self.gate.partition(partition)
        if self.gate.enter(place, self.now):
            self._under_way[call] = partition
        elif reason := self.gate.line_up(place, waiter := waits()):
            return reason
        else:
            self._waiters[call] = waiter
        return self.seen

    def go(self, call: str) -> str:
        self._take_in(woken(self.gate.leave, self.gate.partition(self._under_way.pop(call)), self.now))
        return self.seen

    def resize(self, limit: str) -> str:
        self._take_in(woken(self.gate.resize, int(limit), self.now))
        return self.seen

    def give_up(self, call: str) -> str:
        assert self.gate.give_up(self._waiters.pop(call))
        return self.seen

    def pass_by(self, seconds: str) -> str:
        self.now += round(float(seconds) * SECOND)
        self._take_in(woken(self.gate.serve, self.now))
        return self.seen

    def _take_in(self, served: Sequence[GateWaiter]) -> None:
        for waiter in served:
            call = next(name for name, each in self._waiters.items() if each is waiter)
            del self._waiters[call]
            self._under_way[call] = waiter.partition.name

    @property
    def seen(self) -> str:
        assert self.gate.in_flight == len(self._under_way)
        assert self.gate.waiting.count == len(self._waiters)
        return "".join(call.upper() for call in self._under_way) + "".join(self._waiters)


def play(scene: Scene, story: str) -> None:
    """Play steps, each of which reads "verb arguments: who is there then"."""
    for step in story.split(";"):
        call, _, expected = step.partition(":")
        verb, *args = call.split()
        assert getattr(scene, verb)(*args) == expected.strip(), step


# Without partitions


@pytest.mark.parametrize(("order", "served"), [("fifo", ["Abc", "Bc", "C"]), ("lifo", ["Abc", "Cb", "B"])])
def test_who_is_next(order: Order, served: list[str]) -> None:
    scene = Scene(1, queue=Queue(5, order=order))
    scene.come("a")
    scene.come("b")
    assert scene.come("c") == served[0]
    assert scene.go("a") == served[1]
    assert scene.go(served[1][0].lower()) == served[2]


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_whoever_gave_up_leaves_nothing_behind(order: Order) -> None:
    """A queue whose every waiter timed out, for hours, does not grow."""
    scene = Scene(1, queue=Queue(9, order=order))
    scene.come("a")
    for _ in range(1000):
        for call in "bcd":
            scene.come(call)
        for call in "cbd":
            scene.give_up(call)
    assert not scene.gate.waiting._lines


# Partitions

LIVE = {"live": 0.7, "batch": 0.3}


def test_a_strict_share_is_had_below_the_limit() -> None:
    """Batch has the place to itself until live comes; from then on what gets free is kept for live, up to its share."""
    play(
        Scene(4, Partitions({"live": 0.5}, strict=True)),
        "come a batch: A; come b batch: AB; come c batch: ABC; come d batch: ABCD; come e live: limit; "
        "go a: BCD; come e batch: partition; come e live: BCDE; go b: CDE; come f batch: partition; "
        "come f live: CDEF; go c: DEF; come g batch: DEFG",
    )


def test_a_strict_share_that_nobody_claims_is_lent_after_a_second() -> None:
    play(
        Scene(2, Partitions({"live": 0.5}, strict=True)),
        "come a live: A; go a: ; come b batch: B; come c batch: partition; pass_by 0.999: B; "
        "come c batch: partition; pass_by 0.001: B; come c batch: BC",
    )


def test_who_comes_while_a_gate_is_behind_takes_no_place_under_a_cap_before_those_who_wait_for_it() -> None:
    gate = Gate(1, Partitions({}, caps={"batch": 0.5}), Queue(99))
    batch = gate.partition("batch")
    assert gate.enter(batch, 0)
    for _ in range(20):
        gate.line_up(batch, waits())
    gate.resize(40, 0)
    assert (gate.behind, batch.busy, batch.most, gate.enter(batch, 0)) == (True, 17, 20, False)


def test_who_is_refused_for_a_kept_share_waits_no_less_than_for_a_place() -> None:
    scene = Scene(4, Partitions({"live": 0.25}, strict=True))
    counts = Counts()
    counts.last_rtt_ns = 4 * SECOND
    assert counts.refusal(scene.gate, scene.gate.rest, "partition", scene.now).retry_after == 1.0


def test_who_waits_claims_its_share() -> None:
    """Live has waited for longer than a second, in which nobody came for it: its place is not lent to batch."""
    play(
        Scene(1, Partitions({"live": 1.0}, strict=True), Queue(9)),
        "come a batch: A; come b batch: Ab; come c live: Abc; pass_by 5: Abc; go a: Cb",
    )


@pytest.mark.parametrize("strict", [False, True])
def test_who_is_under_its_share_is_first(strict: bool) -> None:
    scene = Scene(2, Partitions({"live": 0.5}, strict=strict), Queue(9))
    scene.come("a")
    scene.come("b")
    scene.come("c")
    scene.gate.resize(1, scene.now)
    scene.come("d", "live")
    assert scene.seen == ("ABDc" if not strict else "ABcd")


def test_a_share_is_what_it_says_at_every_limit() -> None:
    """Soft ones are rounded up, strict ones down: of all whole percents none is off by float arithmetic."""
    for limit, percent in product(range(1, depth(101, 201)), range(101)):
        for strict, expected in ((False, -(-limit * percent // 100)), (True, limit * percent // 100)):
            gate = Gate(limit, Partitions({"it": percent / 100}, strict=strict))
            assert gate.partition("it").guaranteed == expected, limit


# Many who wait


class Seen(GateWaiter):
    """Counts how often anybody looks at any of them."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        Seen.looks += 1
        return super().__getattribute__(name)


def crowd(gate: Gate, many: int) -> list[Seen]:
    assert gate.enter(gate.rest, 0)
    waiters = [Seen(lambda: None) for _ in range(many)]
    for waiter in waiters:
        assert gate.line_up(gate.rest, waiter) is None
        assert woken(gate.serve, 0) == []  # as a limiter does, once somebody waits
    return waiters


def served_in_turn(gate: Gate, first: Sequence[GateWaiter]) -> list[GateWaiter]:
    served = list(first)
    while gate.behind:
        served += (some := woken(gate.serve, 0))
        assert some
    return served


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_of_many_who_may_enter_few_are_served_at_once(order: Order) -> None:
    gate = Gate(1, queue=Queue(1000, order=order))
    waiters = crowd(gate, 1000)
    first = woken(gate.resize, 1001, 0)
    assert 0 < len(first) <= 16
    assert (gate.behind, gate.open_to) == (True, 0)
    assert served_in_turn(gate, first) == waiters[:: 1 if order == "fifo" else -1]
    assert (gate.behind, gate.open_to, gate.in_flight, gate.waiting.count) == (False, 1001, 1001, 0)


def test_a_gate_whose_waiters_all_left_is_behind_no_more() -> None:
    gate = Gate(1, queue=Queue(100))
    waiters = crowd(gate, 100)
    served = woken(gate.resize, 200, 0)
    for waiter in waiters[len(served) :]:
        assert gate.give_up(waiter)
    assert (gate.behind, gate.open_to, gate.in_flight) == (False, 200, 1 + len(served))


def test_nobody_comes_before_those_whom_a_gate_has_not_served_yet() -> None:
    """Sixteen of a hundred have one of twenty places each, and three are free: for those who wait."""
    gate = Gate(1, queue=Queue(100))
    crowd(gate, 100)
    woken(gate.resize, 20, 0)
    assert (gate.behind, gate.in_flight) == (True, 17)
    assert not gate.enter(gate.rest, 0)
    assert gate.reason == "limit"
    served_in_turn(gate, [])
    assert (gate.in_flight, gate.waiting.count) == (20, 81)


@pytest.mark.parametrize("order", ["fifo", "lifo"])
@pytest.mark.parametrize("how", ["served together", "served one by one", "first goes", "last goes", "sent away"])
def test_a_waiter_is_looked_at_as_often_however_many_wait(order: Order, how: str) -> None:
    def looks(many: int) -> float:
        Seen.looks = 0
        gate = Gate(1, queue=Queue(many, order=order))
        waiters = crowd(gate, many)
        match how:
            case "served together":
                served_in_turn(gate, woken(gate.resize, many + 1, 0))
            case "served one by one":
                for _ in waiters:
                    gate.leave(gate.rest, 0)
            case "sent away":
                served_in_turn(gate, woken(gate.close))
            case _:
                for waiter in waiters[:: 1 if how == "first goes" else -1]:
                    gate.give_up(waiter)
        assert gate.waiting.count == 0
        return Seen.looks / many

    assert looks(2000) <= looks(100) + 1


SHARE = st.sampled_from([0.0, 0.1, 1 / 3, 0.5])
NAME = st.sampled_from(["a", "b", "c"])


@given(
    shares=st.tuples(SHARE, SHARE).map(lambda both: {"a": both[0], "b": both[1]}),
    under_way=st.lists(NAME, max_size=20),
    waiting=st.lists(NAME, min_size=20, max_size=60),
    limits=st.tuples(st.integers(1, 20), st.integers(1, 90)),
    newcomer=NAME,
    strict=st.booleans(),
)
def test_who_comes_while_a_gate_is_behind_finds_what_there_will_be(
    shares: dict[str, float],
    under_way: list[str],
    waiting: list[str],
    limits: tuple[int, int],
    newcomer: str,
    strict: bool,
) -> None:
    """As if all who may enter had entered at once. Strict shares may be kept from a newcomer, and never mislaid."""

    def behind() -> Gate:
        gate = Gate(limits[0], Partitions(shares, strict=strict), Queue(100))
        for name in under_way:
            gate.enter(gate.partition(name), 0)
        for name in waiting:
            place = gate.partition(name)
            gate.enter(place, 0) or gate.line_up(place, waits())
        gate.resize(limits[1], 0)
        return gate

    now, later = behind(), behind()
    served_in_turn(later, [])
    enters, would = (gate.enter(gate.partition(newcomer), 0) for gate in (now, later))
    if strict:
        assert now.in_flight <= max(limits)
        assert would or not enters or now.partition(newcomer).busy <= now.partition(newcomer).guaranteed
    else:
        assert enters == would


# What is wrong at once


def test_shares_may_add_up_to_one_in_floats() -> None:
    """0.05 + 0.55 + 0.3 + 0.1 is above 1 in floats, and the reference refuses it."""
    Partitions({"a": 0.05, "b": 0.55, "c": 0.3, "d": 0.1})
    Partitions({str(i): 1 / 7 for i in range(7)})
    Partitions(dict.fromkeys("abc", 0.3333333334))


parts: Any = Partitions
queue: Any = Queue
shedding: Any = Shedding


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (partial(parts, {"a": 0.7, "b": 0.31}), ValueError, r"at most 1 together, not 1\.01"),
        (partial(parts, {"a": 1.5}), ValueError, "the share of 'a' must be at least 0 and at most 1, not 1.5"),
        (partial(parts, {"a": -0.1}), ValueError, "the share of 'a' must be at least 0 and at most 1, not -0.1"),
        (partial(parts, {"a": float("nan")}), ValueError, "not nan"),
        (partial(parts, {"a": "70%"}), TypeError, "the share of 'a' must be a number, not '70%'"),
        (partial(parts, {"a": True}), TypeError, "not True"),
        (partial(parts, {7: 0.5}), TypeError, "the name of a partition must be a str, not 7"),
        (partial(parts, {"": 0.5}), ValueError, "the name of a partition must not be empty"),
        (partial(parts, None), TypeError, "shares must be a dict of names and shares, not None"),
        (partial(parts, {}, strict=1), TypeError, "strict must be True or False, not 1"),
        (partial(parts, {}, unknown="reject"), ValueError, "unknown must be 'spare' or 'refuse', not 'reject'"),
        *(
            (partial(parts, {"live": 0.5}, caps=caps), error, message)
            for caps, error, message in [
                ({"live": 0.4}, ValueError, "the cap of 'live' must not be below its share of 0.5, but is 0.4"),
                ({"batch": 1.5}, ValueError, "the cap of 'batch' must be at least 0 and at most 1, not 1.5"),
                ({"batch": "all"}, TypeError, "the cap of 'batch' must be a number, not 'all'"),
                ({7: 0.5}, TypeError, "the name of a partition must be a str, not 7"),
                ([0.5], TypeError, "caps must be a dict of names and parts of the limit"),
            ]
        ),
        (partial(shedding, after=0), ValueError, r"after \(periods\) must be at least 1, not 0"),
        (partial(shedding, after=1.5), TypeError, r"after \(periods\) must be a whole number, not 1.5"),
        (partial(shedding, over=0), ValueError, r"over \(periods\) must be at least 1, not 0"),
        (partial(shedding, over="long"), TypeError, r"over \(periods\) must be a whole number, not 'long'"),
        (partial(shedding, share=0), ValueError, "share must be at least 1e-06 and at most 1, not 0"),
        (partial(shedding, share=1.1), ValueError, "not 1.1"),
        (partial(queue, -1), ValueError, r"the length of a queue \(callers\) must be at least 0, not -1"),
        (partial(queue, 1.5), TypeError, r"the length of a queue \(callers\) must be a whole number, not 1.5"),
        (partial(queue, max_wait="1"), TypeError, r"max_wait \(seconds\) must be a number, not '1'"),
        (partial(queue, max_wait=True), TypeError, r"max_wait \(seconds\) must be a number, not True"),
        (partial(queue, max_wait=-1), ValueError, r"max_wait \(seconds\) must be at least 0, not -1"),
        (partial(queue, max_wait=float("nan")), ValueError, "max_wait"),
        (partial(queue, order="random"), ValueError, "must be 'fifo' or 'lifo', not 'random'"),
    ],
)
def test_a_wrong_share_cap_queue_or_shedding(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_the_first_share_that_is_lent_ends_a_pause_and_where_none_is_kept_nothing_does() -> None:
    table = Gate(10, Partitions({"live": 0.5, "batch": 0.2}, strict=True), Queue(length=0))
    assert table.lent_in(1000 * SECOND, 77) == 77
    for name, asked in (("live", 1000 * SECOND), ("batch", 1000 * SECOND - 300)):
        table.partition(name).asked_ns = asked
    assert table.lent_in(1000 * SECOND, 77) == SECOND - 300
    table.partition("batch").busy = 2
    assert table.lent_in(1000 * SECOND, 77) == SECOND
    assert table.lent_in(1001 * SECOND, 77) == 77
