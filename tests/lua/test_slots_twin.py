"""Two copies of the rules of shared slots stand, in Lua and in Python, because these tests compare them."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.bucket.slot_table import KEPT, LONGEST_WAIT, TICK, SlotAsk, SlotPush, SlotReply, SlotTable
from batchlimit.stores.client.scripts import read_push
from tests.depth import depth
from tests.lua.interpreter import Interpreter

_START = 1_700_000_000_000_000
_LUA = Path(__file__).parents[2] / "lua" / "lend.lua"
_LEASE = 1_000_000

_few = st.integers(0, 6)
_asks = st.builds(
    SlotAsk,
    instance=st.sampled_from(("a.1", "a.2", "b.1", "c.1", "d.1", "e.1", "f.1", "g.1")),
    limit=st.sampled_from((3, 3, 3, 8, 100)),
    lease=st.just(_LEASE),
    weight=st.sampled_from((1, 1, 3, 1_000_000)),
    returned=_few,
    held=_few,
    target=st.integers(0, 12),
    waiting=_few,
    extra=_few,
    idle=st.integers(0, 2),
)
_elapsed = st.one_of(st.integers(0, 400_000), st.just(0), st.just(1_100_000), st.integers(-500_000, 0))


class Both:
    """The slots of one limit twice, asked the same things; every answer of the two is compared."""

    def __init__(self) -> None:
        self.lua, self.twin = Interpreter(), SlotTable()
        self.lua.now = _START

    def lend(self, elapsed: int, ask: SlotAsk) -> tuple[SlotReply, list[SlotPush]]:
        """So long after the last ask."""
        lua, twin = self.lua, self.twin
        lua.now += elapsed
        lua.published.clear()
        reply, pushes = twin.lend(ask, lua.now)
        assert lua.lend(ask) == reply
        assert {read_push(text)[1] for _, text in lua.published} == set(pushes)
        assert all(channel == "channel:" + read_push(text)[1].instance[0] for channel, text in lua.published)
        assert lua.fields == spelled(twin)
        assert lua.ttl == (twin.expires - lua.now) // 1000
        return reply, pushes


@given(st.lists(st.tuples(_elapsed, _asks), max_size=30))
def test_lua_and_python_lend_the_same_slots(steps: list[tuple[int, SlotAsk]]) -> None:
    both = Both()
    for elapsed, ask in steps:
        both.lend(elapsed, ask)


_ROUND = (0, 0, 1, 1000, 100_000, 299_999, 300_000, 450_000)
"""Microseconds: a third of a lease of 0.9 s, a half, and less."""


@pytest.mark.parametrize("seed", range(depth(160, 2000)))
def test_lua_and_python_lend_the_same_slots_to_instances_that_remember_what_they_got(seed: int) -> None:
    both, random = Both(), Random(seed)
    limit, names = random.choice((1, 3, 8, 20, 50)), ("a.1", "b.1", "c.1", "d.1")[: random.choice((2, 3, 4))]
    weights = {name: random.choice((1, 1, 2, 3, 5)) for name in names}
    granted, returned = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for _ in range(40):
        name = random.choice(names)
        back = random.choice((0, 0, 0, 1, limit))
        returned[name] = min(granted[name], returned[name] + back)
        held = granted[name] - returned[name]
        target = random.choice((0, held, held + 1, held + 3, held + 9, limit))
        waiting, idle = random.choice((0, 1, limit, limit)), random.choice((0, 0, held // 2, held))
        ask = SlotAsk(
            name, limit, 900_000, weights[name], returned[name], held, target, waiting, random.choice((0, 0, 3)), idle
        )
        reply, pushes = both.lend(random.choice(_ROUND), ask)
        granted[name] = reply.granted
        for push in pushes:
            granted[push.instance] = push.granted


def spelled(twin: SlotTable) -> dict[str, str]:
    """The hash of a table."""
    fields = {"limit": str(twin.limit), "token": str(twin.token)}
    for name, one in twin._by_name.items():
        numbers = one.held, one.ends, one.wants, one.since, one.weight, one.idle, one.limit, one.granted, one.told
        fields[f"instance:{name}"] = " ".join(map(str, numbers))
    return fields


def test_both_keep_a_limit_until_the_clock_has_passed_its_token() -> None:
    """The server's clock was turned back by an hour."""
    lua, twin, ask = Interpreter(), SlotTable(), SlotAsk("a.1", 1, _LEASE)
    lua.now = _START
    twin.token = (_START + 3_600_000_000) // TICK
    lua.fields = {"token": str(twin.token)}
    assert lua.lend(ask) == twin.lend(ask, lua.now)[0]
    assert lua.ttl == (twin.expires - lua.now) // 1000 > 3_600_000


def test_both_count_tokens_in_the_same_unit() -> None:
    assert f"local TICK = {TICK} " in _LUA.read_text()


def test_both_keep_a_limit_for_the_same_time() -> None:
    assert f"local KEPT = {KEPT} " in _LUA.read_text()


def test_both_count_a_wait_for_as_long() -> None:
    assert f"local LONGEST_WAIT = {LONGEST_WAIT} " in _LUA.read_text()
    assert LONGEST_WAIT * 1_000_000 < 2**53


def crowded(waiters: int) -> Interpreter:
    """A limit of which one instance has all slots, and so many instances wait for one each."""
    lua = Interpreter()
    lua.now = _START
    ends, wait = _START + _LEASE, range(waiters)
    lua.fields = {f"instance:i{i}.1": f"0 {ends} 1 {_START - i} 1 0 {waiters} 0 0" for i in wait}
    lua.fields |= {"instance:all.1": f"{waiters} {ends} 0 {_START} 1 0 {waiters} {waiters} 0", "token": "1"}
    return lua


def give_all_back(waiters: int) -> Interpreter:
    """They all get one from one ask."""
    lua = crowded(waiters)
    lua._lua.execute("steps = 0; debug.sethook(function() steps = steps + 1 end, '', 100)")
    lua.lend(SlotAsk("all.1", waiters, _LEASE, returned=waiters))
    assert len(lua.published) == waiters
    return lua


def test_an_ask_that_gives_slots_to_four_times_as_many_takes_no_more_than_six_times_as_long() -> None:
    few, many = (give_all_back(waiters)._lua.globals().steps for waiters in (100, 400))
    assert many < 6 * few


def test_one_ask_gives_slots_to_any_number_of_instances() -> None:
    lua = give_all_back(4500)
    assert sum(text.startswith("1 ") for name, text in lua.fields.items() if name.startswith("instance:")) == 4500
