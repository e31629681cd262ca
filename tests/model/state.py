"""States by value: a photograph of a world says what it holds, takes it back there, and tells equal worlds.

One walk over the objects does both. It copies the fields of each object that may change; `put_back` puts them back into
the same objects, so that no object is ever copied. (An event with its photograph takes 0.4 ms.)
And it lists the values: two worlds whose lists are equal go on alike.

Three things make lists equal that are not so as they stand. Instants count from now. Numbers of messages count from the
last. Instances are named in the order of their own values, for it does not matter which of two alike did what.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from itertools import repeat
from math import inf
from operator import attrgetter, length_hint
from typing import Any

from batchlimit.base.histogram import Durations
from batchlimit.bucket.messages import Ask, GiveBack, Spend
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable
from batchlimit.keyspace.census import Page, Tallies
from batchlimit.quota.lookup import Policies
from batchlimit.quota.overrides.code import Code
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.tokens import NO_TOKENS, FreeTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.stores.memory_parts import Expiring, MemorySlots

Shot = tuple[Any, Any]
"""An object, and what its fields, or its members, were."""

LATE = 500_000.0
"""Seconds: a larger float is an instant, for no world lasts that long; its clock begins later."""
_LATE = 500_000_000_000
"""The same in us, of a larger int."""

_FIXED = (Options, Code, Policies, Durations, MemorySlots, enum.Enum, BaseException)
"""Nothing in a world changes these."""
_UNHEARD = {
    "_used", "_refused", "_shadow",  # of a bucket: for people
    "_since", "since", "rank", "_version",  # which of two quotas holds: there is one
    "lasts",  # a sum, which Watch compares with its parts
    "came", "refused", "asked", "spent", "refusals_told", "shadow_told",  # see `_State` and `_Asked`
    "served", "refused_by_store", "timed_out", "shadow_refused", "calls", "paid", "_tallies", "page", "_told",
    "_taken_back", "waits", "_counts_at",  # statistics
    "numbers", "number", "sent", "reports", "_births", "place", "seeker", "_cache", "_forgot_at",  # names and order
}  # fmt: skip
"""Fields that are photographed, and decide nothing of what happens later."""
_SKIPPED = {
    "__dict__", "__weakref__", "_world", "event", "clock", "_clock", "key", "lock", "_make",
    "_left", "_fill", "policy", "_policy", "_policies", "_options", "_kind", "place", "page", "_state",
    "_admission", "_forecast", "_requests", "_rules", "_tokens", "_entries", "_instance_count",
}  # fmt: skip
"""Fields that never change once they are set, and lead to what is walked anyway: parts of one thing know each other."""
_NOT_OF = {"__dict__", "__weakref__", "_policies"}
"""The same of what counts keys."""


def put_back(shots: Sequence[Shot]) -> None:
    """Have all be as it was."""
    for thing, was in shots:
        _PLANS[type(thing)].put(thing, was)


class Walk:
    """One walk; `values` are those that it came by since they were taken last."""

    def __init__(self, now: int) -> None:
        self._now, self._clock = now, inf
        self._seen: dict[int, int] = {}
        self._first = self._last = 0
        self.names: dict[str, int] = {}
        self.last_numbers: dict[str, int] = {}
        self.shots: list[Shot] = []
        self.values: list[Any] = []

    def along(self, things: Iterable[Any], clock: float = inf, last: int = 0) -> tuple[Any, ...]:
        """Return the values of these; `clock` is what their instance's shows, `last` the number of its last message."""
        self._clock, self._last, self._first, self.values = clock, last, len(self._seen), []
        for each in things:
            self.see(each)
        return tuple(self.values)

    def see(self, value: Any) -> None:
        kind = type(value)
        if kind is int:
            self.values.append(value - self._now if value > _LATE else value)
        elif kind is float:
            late = LATE < value < inf
            self.values.append(round(value - self._clock if late else value, 6))
        elif kind is str:
            self.values.append(self.names.get(value, value))
        elif value is None or kind is bool:
            self.values.append(value)
        else:
            _plan_of(kind, value).walk(self, value)

    def photograph(self, thing: Any, was: Any) -> bool:
        """Keep what a thing is; False: it was here before."""
        if (place := self._seen.get(id(thing))) is not None:
            self.values.append(("seen", place - self._first))
            return False
        self._seen[id(thing)] = len(self._seen)
        self.shots.append((thing, was))
        return True


class _Plan:
    """What to do with things of one class."""

    def walk(self, walk: Walk, thing: Any) -> None:
        """Nothing of it changes, or nobody looks."""

    def put(self, thing: Any, was: Any) -> None:
        """It was never photographed."""


class _Value(_Plan):
    """A tuple, or a frozen dataclass."""

    def __init__(self, fields: Callable[[Any], Iterable[Any]], name: str) -> None:
        self._fields, self._name = fields, name

    def walk(self, walk: Walk, thing: Any) -> None:
        walk.values.append(self._name)
        for each in self._fields(thing):
            walk.see(each)


class _Packed(_Plan):
    """A snapshot of a dormant key."""

    def walk(self, walk: Walk, thing: Any) -> None:
        for each in KeySnapshot.unpack(thing):
            walk.see(each)


class _Spent(_Plan):
    """A Spend: how old its quota is does not matter."""

    def walk(self, walk: Walk, thing: Any) -> None:
        walk.values += ("Spend", thing.cost, thing.fill, thing.quota.rate, thing.rules)


class _Rate(_Plan):
    """A quota: those of one world have different rates."""

    def walk(self, walk: Walk, thing: Any) -> None:
        walk.values.append(thing.rate)


class _Edition(_Plan):
    """Overrides: those of one revision are the same."""

    def walk(self, walk: Walk, thing: Any) -> None:
        walk.values.append(thing.revision)


class _Numbered(_Plan):
    """An Ask or a GiveBack."""

    def walk(self, walk: Walk, thing: Any) -> None:
        walk.values.append(thing.seq - walk._last)
        for name, each in zip(thing._fields, thing, strict=True):
            if name not in ("instance", "seq", "age"):
                walk.see(each)


class _Members(_Plan):
    """A list, a deque, a set."""

    def walk(self, walk: Walk, thing: Any) -> None:
        if walk.photograph(thing, list(thing)):
            walk.values.append(len(thing))
            for each in sorted(thing) if isinstance(thing, set) else thing:
                walk.see(each)

    def put(self, thing: Any, was: Any) -> None:
        thing.clear()
        if isinstance(thing, set):
            thing.update(was)
        else:
            thing.extend(was)


class _Pairs(_Plan):
    """A dict."""

    def walk(self, walk: Walk, thing: Any) -> None:
        if walk.photograph(thing, dict(thing)):
            walk.values.append(len(thing))
            for key, each in thing.items():
                walk.see(key)
                walk.see(each)

    def put(self, thing: Any, was: Any) -> None:
        thing.clear()
        thing.update(was)


class _Ending(_Plan):
    """A dict of what ends; in which order it is looked at does not matter."""

    def walk(self, walk: Walk, thing: Any) -> None:
        if walk.photograph(thing, (list(thing.items()), thing._forgot_at)):
            walk.values.append(len(thing))
            for key in sorted(thing):
                walk.see(key)
                walk.see(thing[key])

    def put(self, thing: Any, was: Any) -> None:
        thing.clear()
        items, thing._forgot_at = was
        thing.update(items)


class _Object(_Plan):
    """Fields that may change."""

    def __init__(self, kind: type, thing: Any) -> None:
        self._names = fields_of(kind, thing)
        self._get: Callable[[Any], Any] = attrgetter(*self._names, "__class__")
        self._told = [name not in _UNHEARD for name in self._names]
        self._kind = kind.__name__

    def walk(self, walk: Walk, thing: Any) -> None:
        try:
            was = self._get(thing)
        except AttributeError:  # some fields are not set yet
            was = tuple(getattr(thing, name, _UNSET) for name in self._names)
        if walk.photograph(thing, was):
            walk.values.append(self._kind)
            self.tell(walk, thing, was)

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        values, now, clock = walk.values, walk._now, walk._clock
        for told, each in zip(self._told, was, strict=False):
            kind = type(each)
            if kind is int:
                if told:
                    values.append(each - now if each > _LATE else each)
            elif kind is float:
                if told:
                    values.append(round(each - clock if LATE < each < inf else each, 6))
            elif each is None or kind is bool:
                if told:
                    values.append(each)
            elif told:
                walk.see(each)
            elif kind is not str:
                walk.values = []
                walk.see(each)
                walk.values = values

    def put(self, thing: Any, was: Any) -> None:
        for name, each in zip(self._names, was, strict=False):
            if each is not _UNSET:
                setattr(thing, name, each)


class _State(_Object):
    """Of the counts of a KeyState their differences alone: what is asked for and spent since the last count."""

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        super().tell(walk, thing, was)
        spent = thing.tokens.came - thing.tokens.available
        walk.values += (spent - thing.spent, spent + thing.tokens.refused + thing.queue.cost - thing.asked)


class _Asked(_Object):
    """Of the refusals those that the bucket was not told of."""

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        number, thing_number = thing.lost_number, self._names.index("lost_number")
        super().tell(walk, thing, (*was[:thing_number], number and number - walk._last, *was[thing_number + 1 :]))
        walk.values.append(thing._state.tokens.refused - thing.refusals_told)


class _Named(_Object):
    """An Instance, which is frozen: what it counts."""

    def __init__(self, kind: type, thing: Any) -> None:
        self._names, self._told, self._kind = ("count", "numbers", "rules"), [True, False, True], kind.__name__
        self._get = attrgetter(*self._names)

    def put(self, thing: Any, was: Any) -> None:
        """It has what it had."""


class _Queue(_Object):
    """Waiters in their order; their numbers do not matter."""

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        values, walk.values = walk.values, []
        super().tell(walk, thing, was)
        walk.values = values
        walk.values += (thing.cost, len(thing.waiters), len(thing._awake), len(thing._hasty))
        for number in sorted(thing.waiters):
            waiter = thing.waiters[number]
            walk.values += (waiter.cost, waiter.beyond, round(waiter.deadline - walk._clock, 6), waiter.asked)
            walk.values.append(waiter.priority)
        if (turns := thing._turns) is not None:
            walk.values += (round(time - turns._now, 6) for _, time in sorted(turns._times.items()))


class _Table(_Object):
    """The instances of a bucket, in the order of their names; the numbers that they had last."""

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        values, walk.values = walk.values, []
        super().tell(walk, thing, was)
        walk.values = values
        walk.values += (thing.outstanding, thing.active, thing.weights, walk._now - thing.swept)
        for name in sorted(thing.instances, key=lambda name: walk.names.get(name, 9)):
            entry: InstanceEntry = thing.instances[name]
            last = walk.last_numbers.get(name, 0)
            walk.values += (walk.names.get(name, 9), entry.seq - last if entry.seq >= 0 else 1)
            for each in (entry.held, entry.expires, entry.last, entry.seen, entry.granted, entry.starts):
                walk.see(each)
            walk.see(entry.known)
            walk.values.append(entry.weight)
            walk.see(entry.weight)


class _Tokens(_Object):
    """Tokens that are laid out are steps of an iterator: as many are laid out anew."""

    def tell(self, walk: Walk, thing: Any, was: tuple[Any, ...]) -> None:
        super().tell(walk, thing, was)
        laid_out = length_hint(thing.lock_free)
        walk.values.append(laid_out)
        walk.shots[-1] = thing, (*was[:-1], laid_out)

    def put(self, thing: Any, was: Any) -> None:
        super().put(thing, was)
        thing.lock_free = repeat(thing.expires, was[-1]) if was[-1] else NO_TOKENS


_UNSET = object()
_PLAIN = (int, float, str, bool, type(None))
_OBJECTS: dict[type, type[_Object]] = {
    KeyState: _State, Requests: _Asked, WaitQueue: _Queue, InstanceTable: _Table, FreeTokens: _Tokens, Instance: _Named,
}  # fmt: skip
_PLANS: dict[type, _Plan] = {
    dict: _Pairs(), list: _Members(), deque: _Members(), set: _Members(), Ask: _Numbered(), GiveBack: _Numbered(),
    tuple: _Value(lambda thing: thing, "tuple"), bytes: _Packed(), Spend: _Spent(), Quota: _Rate(),
    Overrides: _Edition(), Expiring: _Ending(),
}  # fmt: skip


def let_be(*kinds: type) -> None:
    """Do not walk into things of these classes: whoever walks looks at what matters of them."""
    _PLANS.update((kind, _Plan()) for kind in kinds)


def _plan_of(kind: type, thing: Any) -> _Plan:
    if (found := _PLANS.get(kind)) is None:
        found = _PLANS[kind] = _made(kind, thing)
    return found


def _made(kind: type, thing: Any) -> _Plan:
    is_ours = kind.__module__.startswith(("batchlimit.", "tests."))
    if not is_ours or issubclass(kind, _FIXED) or not (issubclass(kind, tuple) or fields_of(kind, thing)):
        return _Plan()
    if issubclass(kind, tuple):
        return _Value(lambda thing: thing, kind.__name__)
    if is_dataclass(kind) and kind not in _OBJECTS and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        fields = fields_of(kind, thing)
        return _Value(lambda thing: [getattr(thing, name) for name in fields], kind.__name__)
    return _OBJECTS.get(kind, _Object)(kind, thing)


def fields_of(kind: type, thing: Any) -> tuple[str, ...]:
    """Return the names of all fields."""
    names = [name for each in reversed(kind.__mro__) for name in each.__dict__.get("__slots__", ())]
    names += getattr(thing, "__dict__", {})
    skipped = _NOT_OF if kind in (Tallies, Page) else _SKIPPED
    return tuple(dict.fromkeys(name for name in names if name not in skipped))
