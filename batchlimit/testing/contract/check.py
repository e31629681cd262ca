"""What the rules of the contract are made of, and check_store: whether a store keeps them.

An AsyncStore is asked through the face of a Store.
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import AsyncStore, Store

KEY = "tenant:42"
SLOW = 0.001
"""Tokens a second: no whole token is refilled while a rule is tested."""
HUNDRED = Quota(SLOW, 100)


class AskingInstance:
    """A limiter instance's side of the talk. It says that it is 2 s away: a machine that stalls loses no lease."""

    def __init__(
        self, store: Store, quota: Quota = HUNDRED, *, key: str = KEY, name: str = "a", trip: float = 2.0
    ) -> None:
        self.store, self.quota, self.key, self.name, self.trip = store, quota, key, name, trip
        self.seq = self.held = self.epoch = 0
        self.age = 0.0
        self.rank = 0, 0  # rules, revision

    def ask(self, need: int, *, queued: int | None = None, want: int | None = None, back: int = 0) -> Ask:
        """The next ask: queued is at least the need and want at least the queued, unless told."""
        self.seq += 1
        queued = need if queued is None else queued
        want = queued if want is None else want
        held, epoch = self.held - back, self.epoch
        ask = Ask(self.name, self.seq, need, queued, want, held, back, age=self.age, epoch=epoch, round_trip=self.trip)
        return ask._replace(rules=self.rank[0], revision=self.rank[1])

    def send(self, ask: Ask) -> Grant:
        grant = self.store.take(self.key, self.quota, ask)
        self.held, self.epoch = grant.kept + grant.granted, grant.epoch
        return grant

    def take(self, need: int, *, queued: int | None = None, want: int | None = None, max_wait: float = 0.0) -> Grant:
        return self.send(self.ask(need, queued=queued, want=want)._replace(max_wait=max_wait))

    def report(self) -> Grant:
        """Tell what is still held, and ask for nothing."""
        return self.take(0)

    def spend(self, n: int) -> None:
        """Take n tokens for n waiting callers, who spend them at once; report it."""
        assert self.take(n).granted == n
        self.held -= n
        self.report()

    def give_back(self, tokens: int, *, held: int | None = None, refund: int = 0) -> int:
        self.seq += 1
        self.held = self.held - tokens if held is None else held
        return self.store.give_back(self.key, self.quota, GiveBack(self.name, self.seq, tokens, self.held, refund))

    def peek(self) -> Level:
        """Return what a look shows, but for parts of tokens, which not every store tells."""
        return Level(*self.store.peek(self.key, self.quota)[:3])


F = TypeVar("F", bound=Callable[..., None])
MOST_SEEDS = 10
"""Seeds of a rule that tries random messages, at the most."""


class StoreRule(NamedTuple):
    """One rule; `check` raises AssertionError unless a store keeps it, which has to be new."""

    name: str
    check: Callable[[Store], None]


def cases(name: str, values: Iterable[object]) -> Callable[[F], F]:
    """Have a rule hold for each of these values of an argument."""

    def note(function: F) -> F:
        noted: Any = function
        noted.cases = [(name, list(values)), *getattr(function, "cases", [])]
        return function

    return note


def rules_of(module: ModuleType, seeds: int) -> Iterator[StoreRule]:
    """Yield the rules of a module, those of random messages for so many seeds."""
    for name, function in vars(module).items():
        if callable(function) and function.__module__ == module.__name__ and not name.startswith("_"):
            arguments = getattr(function, "cases", [])
            names = [argument for argument, _ in arguments]
            values = [each[:seeds] if argument == "seed" else each for argument, each in arguments]
            for case in product(*values):
                told = f"[{', '.join(map(str, case))}]" if case else ""
                yield StoreRule(f"{name}{told}", partial(function, **dict(zip(names, case, strict=True))))


def near(seen: float, wanted: float, rel: float = 1e-6) -> bool:
    """Whether two numbers differ by no more than so great a part of them."""
    return math.isclose(seen, wanted, rel_tol=rel, abs_tol=1e-12)


def store_rules(seeds: int = 3) -> list[StoreRule]:
    """Return the rules that every store has to keep, for a test of each: `rule.check(store)`, with a new store.

    Args:
        seeds: how many random sequences of messages are sent, for each rule about them (default 3, at most 10).

    Returns:
        Rules, each with a `name` and a `check`.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> for rule in store_rules():
        ...     if "share" in rule.name:
        ...         rule.check(MemoryStore())
    """
    from batchlimit.testing.contract import lending, returns  # they are made of what stands here

    return [rule for module in (lending, returns) for rule in rules_of(module, seeds)]


def check_store(make: Callable[[], Store | AsyncStore], seeds: int = 3) -> None:
    """Check that a store keeps all rules, and say which it breaks.

    Args:
        make: returns a new store whose buckets nobody has used, such as one with another prefix; for threads or for
            tasks. It is closed.
        seeds: as of `store_rules` (default 3).

    Raises:
        ExceptionGroup: of an error for each rule that is broken.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> from batchlimit.testing import check_store
        >>> check_store(MemoryStore)
    """
    broken = list[Exception]()
    for rule in store_rules(seeds):
        made = make()
        store = BlockingStore(made) if isinstance(made, AsyncStore) else made
        try:
            rule.check(store)
        except Exception as error:  # noqa: BLE001  the store's own, which may be anything
            error.add_note(f"the rule: {rule.name.replace('_', ' ')}")
            broken.append(error)
        finally:
            store.close()
    if broken:
        raise ExceptionGroup(f"the store breaks {len(broken)} rules", broken)


_PATIENCE = 100.0
"""Seconds that an answer may take; generous, for a slow machine is no fault of the store."""


_starting = threading.Lock()  # held to start the loop once
_loops: list[asyncio.AbstractEventLoop] = []
"""The one event loop of all stores, in a thread of its own that ends with the process."""


def awaited(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call something on the loop, and return what it returns, when it is awaited if it can be."""
    with _starting:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(target=_loops[0].run_forever, daemon=True).start()

    async def work() -> Any:
        told = call(*args, **kwargs)
        return await told if inspect.isawaitable(told) else told

    return asyncio.run_coroutine_threadsafe(work(), _loops[0]).result(_PATIENCE)


class Blocking:
    """A store whose methods are awaited, or a part of one, for threads."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(awaited, found) if callable(found) else found


class BlockingStore(Blocking):
    """An AsyncStore for threads."""

    is_prompt = False

    @property
    def address(self) -> str:
        return str(self._inner.address)

    def close(self) -> None:
        awaited(self._inner.aclose)
