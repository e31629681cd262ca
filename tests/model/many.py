"""A world of calls at several keys: the whole AsyncRateLimiter of each instance, on a loop in which time stands still.

Nothing of a limiter is written here anew: its tasks run until all of them wait, for an answer or for a timer. A state
is where they stand, by the values that they know there. A coroutine cannot be copied, so a world goes back by playing
its history again.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from batchlimit import AsyncRateLimiter
from batchlimit.aio.awaitable import Pending
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.home import Home
from batchlimit.aio.registry import Registry
from batchlimit.aio.spends import Spends
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, SpendReply
from batchlimit.errors import RateLimited, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import MemoryStore
from tests.model.limiter import Numbers
from tests.model.many_watch import ManyWatch
from tests.model.shapes import CallKind, ManyShape
from tests.model.state import Walk, let_be
from tests.model.turns import Turns, tell
from tests.model.world import BEGINS, Event, _refills
from tests.simulation.watch import Violation

_LETTERS = "ABCD"
_SECOND = 1_000_000
_CALM = 60 * _SECOND


class Line:
    """The store as one instance sees it: what it asks for is on its way."""

    address, is_prompt, spends_together = "memory://", True, True

    def __init__(self, world: "Scene", place: int) -> None:
        self._world, self._place = world, place
        self.spends_together = world.shape.together

    def part(self, key: str) -> str:
        return ""

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return await self._world.send(self._place, (key, quota, ask))  # type: ignore[no-any-return]

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        return await self._world.send(self._place, groups)  # type: ignore[no-any-return]

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return await self._world.send(self._place, (key, quota, back))  # type: ignore[no-any-return]

    async def peek(self, key: str, quota: Quota) -> Any:
        raise StoreUnavailable("nobody looks")

    async def probe(self, key: str) -> None:
        raise StoreUnavailable("nobody probes")

    def after_fork(self) -> None:
        pass

    renew = after_fork

    async def disconnect(self) -> None:
        pass

    aclose = disconnect


class Letter(NamedTuple):
    """Something on its way; see Message. `awaited` is what its instance waits for."""

    place: int
    body: Any
    sent: int
    stage: str
    awaited: "asyncio.Future[Any]"
    answer: Any = None


@dataclass
class Call:
    """One caller, and its task."""

    place: int
    kind: CallKind
    task: "asyncio.Task[Any]"


@dataclass
class Process:
    """One instance, and who it is to the store."""

    name: str
    limiter: AsyncRateLimiter
    numbers: Numbers = field(default_factory=Numbers)

    def __post_init__(self) -> None:
        instance = self.limiter._registry._keyspace._instance
        object.__setattr__(instance, "name", self.name)
        object.__setattr__(instance, "numbers", self.numbers)

    def held(self, key: str, now: float) -> int:
        """Tokens that callers could be admitted by."""
        entry = self.limiter._entries.get(key)
        if entry is None or now >= entry.tokens.expires:
            return 0
        lease = entry.reservoir.state.lease
        return lease.leased + (0 if lease.borrowed else lease.pledged)


class Scene:
    """All that there is, and what may happen next; see World."""

    def __init__(self, shape: ManyShape) -> None:
        self.shape = shape
        self.story: list[str] | None = None
        self.now, self.history, self._letters, self._calls = BEGINS, list[Event](), list[Letter](), list[Call]()
        self._store = MemoryStore(clock=lambda: (self.now + 0.5) / _SECOND)
        self.loop = Turns(self._clock)  # type: ignore[abstract]  # what it lacks nobody calls
        self.left = dict(shape.most)
        self._processes = [self._born(place) for place in range(shape.instances)]
        self.watch = ManyWatch(shape.quotas, 2 * shape.deadline, self.now)
        for kind in shape.first:
            self._come(0, kind)
            self.loop.run()
            while self._letters:
                self.replay(Event("arrive"))
        for kind in shape.begun:
            self._come(0, kind)
            self.loop.run()
        self.history.clear()

    def _clock(self) -> float:
        return self.now / _SECOND

    def _born(self, place: int) -> Process:
        shape = self.shape
        limiter = AsyncRateLimiter(
            Line(self, place), dict(shape.quotas), sizer=shape.sizer, idle_after=shape.idle_after,
            deadline=shape.deadline, clock=self._clock,
        )  # fmt: skip
        return Process(_LETTERS[place], limiter)

    @property
    def _buckets(self) -> dict[str, Bucket]:
        return {key: bucket for key, (bucket, _) in self._store._buckets.items()}

    # What may happen

    def events(self) -> Iterator[Event]:
        """What may happen next."""
        left = self.left
        for at, letter in enumerate(self._letters):
            yield from self._events_of(at, letter)
        if left.get("calls"):
            for place in range(len(self._processes)):
                yield from (Event("call", place, kind) for kind in range(len(self.shape.calls)))
        if left.get("cancels"):
            yield from (Event("cancel", at) for at in range(len(self._calls)))
        if not self._is_over and self._next() < math.inf:
            yield Event("tick")

    def _events_of(self, at: int, letter: Letter) -> Iterator[Event]:
        faults = self.left.get("faults")
        if letter.stage != "lost":
            yield Event("arrive", at)
        if faults and letter.stage in ("going", "coming"):
            yield Event("lose", at)
        if faults and letter.stage == "going":
            yield Event("double", at)
            yield Event("late", at)

    @property
    def is_settled(self) -> bool:
        """Whether nobody comes any more, and nothing goes wrong."""
        return not any(self.left.values())

    @property
    def _is_over(self) -> bool:
        return not (self._calls or self.left.get("calls") or any(each.stage != "copy" for each in self._letters))

    def happen(self, event: Event) -> None:
        """Let it happen; raises Violation if a rule is broken by it."""
        self.replay(event)
        self.watch.look(self._processes, self._buckets, self.now, is_quiet=not self._calls)

    def replay(self, event: Event) -> None:
        """Let it happen once more."""
        self.history.append(event)
        if (most := f"{event.kind}s") in self.left:
            self.left[most] -= 1
        getattr(self, f"_{event.kind}")(event)
        self.loop.run()

    @property
    def waits(self) -> str:
        """At whom a caller waits; "": at nobody."""
        return self._processes[self._calls[0].place].name if self._calls else ""

    def calm_event(self) -> Event | None:
        """What happens next if nothing goes wrong."""
        for at, letter in enumerate(self._letters):
            if letter.stage in ("going", "coming"):
                return Event("arrive", at)
        return Event("tick") if self._next() < math.inf else None

    # Callers

    def _call(self, event: Event) -> None:
        self._come(event.place, self.shape.calls[event.cost])

    def _come(self, place: int, kind: CallKind) -> None:
        process = self._processes[place]
        self._say(f"a caller of {_shown(kind.costs)} comes to {process.name}{' that waits' if kind.waits else ''}")
        task = self.loop.create_task(_work(process.limiter, kind))
        self._calls.append(call := Call(place, kind, task))
        task.add_done_callback(partial(self._ended, call))

    def _ended(self, call: Call, task: "asyncio.Task[Any]") -> None:
        self._calls.remove(call)
        process = self._processes[call.place]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, RateLimited | StoreUnavailable):
            raise error
        is_admitted = error is None and task.result()
        how = "admits" if is_admitted else "fails" if isinstance(error, StoreUnavailable) else "refuses"
        self._say(f"{process.name} {how} a caller of {_shown(call.kind.costs)}")
        if is_admitted:
            self.watch.admitted(process.name, call.kind.costs, self.now)

    def _cancel(self, event: Event) -> None:
        call = self._calls[event.place]
        self._say(f"a caller of {_shown(call.kind.costs)} at {self._processes[call.place].name} is interrupted")
        self.watch.in_vain(sum(call.kind.costs.values()))
        call.task.cancel()

    # Messages

    async def send(self, place: int, body: Any) -> Any:
        """Have a message on its way, and wait for its answer."""
        loop = asyncio.get_running_loop()
        letter = Letter(place, body, self.now, "going", loop.create_future())
        self._letters.append(letter)
        self._say(f"{self._processes[place].name} {_told(body)}")
        if isinstance(body, tuple) and isinstance(body[2], GiveBack):
            self.watch.in_vain(body[2].refund)
        try:
            return await letter.awaited
        finally:
            self._letters = [
                each for each in self._letters if each.awaited is not letter.awaited or each.stage == "copy"
            ]

    def _arrive(self, event: Event) -> None:
        letter = self._letters[event.place]
        if letter.stage == "coming":
            self._say(f"the answer reaches {self._processes[letter.place].name}")
            letter.awaited.set_result(letter.answer)
            return
        answer = self._carry_out(letter)
        if letter.stage == "copy":
            del self._letters[event.place]
        else:
            self._letters[event.place] = letter._replace(stage="coming", answer=answer)

    def _lose(self, event: Event) -> None:
        self.left["faults"] -= 1
        letter = self._letters[event.place]
        what = "the answer to" if letter.stage == "coming" else "a message of"
        self._say(f"{what} {self._processes[letter.place].name} is lost")
        self._letters[event.place] = letter._replace(stage="lost", answer=None)

    def _double(self, event: Event) -> None:
        self.left["faults"] -= 1
        letter = self._letters[event.place]
        self._say(f"a message of {self._processes[letter.place].name} is doubled")
        self._letters.append(letter._replace(stage="copy"))

    def _late(self, event: Event) -> None:
        self.left["faults"] -= 1
        letter = self._letters[event.place]
        self._say(f"a message of {self._processes[letter.place].name} comes late: nobody waits for its answer any more")
        self._letters[event.place] = letter._replace(stage="lost")
        self._letters.append(letter._replace(stage="copy"))

    def _carry_out(self, letter: Letter) -> Any:
        body, name = letter.body, self._processes[letter.place].name
        if isinstance(body, list):
            return self._spend(body, name)
        key, quota, what = body
        if isinstance(what, GiveBack):
            credited = self._store.give_back(key, quota, what)
            self._say(f"the bucket of {key} takes back {credited} of {name}; {self._holds()}")
            return credited
        grant = self._store.take(key, quota, what)
        self._say(f"the bucket of {key} grants {grant.granted} of {what.want} to {name}; {self._holds()}")
        self.watch.asked(name, key, what, grant, self._store._buckets[key][0], self.now)
        return grant

    def _spend(self, groups: Any, name: str) -> SpendReply:
        reply = self._store.spend(groups)
        for group, told in zip(groups, reply.groups, strict=True):
            is_charged = told is not None and all(each.is_charged for each in told)
            how = "spend" if is_charged else "cannot tell of" if told is None else "refuse"
            self._say(
                f"the buckets {how} {_shown({each.key: each.cost for each in group})} for {name}; {self._holds()}"
            )
            self.watch.spent(group, told, self._buckets, self.now)
        return reply

    def _holds(self) -> str:
        parts = [
            f"{key} has {min(bucket._levels):g}{_leased(bucket)}" for key, (bucket, _) in self._store._buckets.items()
        ]
        return ", ".join(parts)

    # Time

    def _next(self) -> float:
        late = [each for each in self._letters if each.stage in ("going", "coming")]
        if any(each.sent + self.shape.slowest <= self.now for each in late):
            return math.inf
        instants: list[float] = [each.sent + self.shape.slowest for each in late]
        instants.append(self.loop.due)
        for bucket, _ in self._store._buckets.values():
            instants += [
                bucket._epoch + each.expires for each in bucket._table.instances.values() if each.held or each.granted
            ]
            if self.left.get("calls") or self._calls:
                instants += _refills(bucket)
        return min([each for each in instants if self.now < each < 1 << 62], default=math.inf)

    def _tick(self, event: Event) -> None:
        before, now = self.now, int(self._next())
        self.watch.passes(self._processes, before, now)
        self.now = now
        self._say(f"{(self.now - before) / _SECOND:g} s go by")

    # States

    def key(self) -> int:
        """Return a key, equal for worlds that go on alike."""
        walk = Walk(self.now)
        walk.names = {each.name: place for place, each in enumerate(self._processes)}
        walk.last_numbers = {each.name: each.numbers.sent for each in self._processes}
        walk.along([], self._clock())
        for process in self._processes:
            registry = process.limiter._registry
            walk._last = process.numbers.sent
            walk.see((registry._keyspace, registry.due, registry.store.spends_together))
            walk.values.append(registry.store._outages.breakers[""].consecutive_failures)
        for task in self.loop.under_way():
            tell(walk, task)
        for letter in self._letters:
            walk._last = self._processes[letter.place].numbers.sent
            walk.see((letter.place, letter.body, letter.sent, letter.stage, letter.answer))
        walk.see((self._store._buckets, self.left, self.watch, self.loop.due))
        return hash(tuple(walk.values))

    def check_end(self) -> None:
        """Nothing was charged but what callers were admitted for, where nothing went wrong."""
        if "faults" not in self.shape.most:
            self.watch.check_end(self._processes, self._buckets, self.now)

    def _say(self, line: str) -> None:
        if self.story is not None:
            self.story.append(f"{(self.now - BEGINS) / _SECOND:9.6f}  {line}")


class _Live:
    """A scene; nobody else knows of this, so with the last photograph that has it the tasks of the scene end."""

    def __init__(self, shape: ManyShape) -> None:
        self.scene = Scene(shape)

    def __del__(self) -> None:
        self.scene.loop.end()


class Moment(NamedTuple):
    """What a world was after so many events; the scene may have gone on since."""

    history: tuple[Event, ...]
    live: _Live


class ManyWorld:
    """A scene that goes back: to one that stands there still, or by playing its history again."""

    def __init__(self, shape: ManyShape) -> None:
        self._shape, self._live = shape, _Live(shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live.scene, name)

    def events(self) -> Iterator[Event]:
        """Yield what may happen next. The world lives as long as this does: the tasks of its scene end with it."""
        yield from self._live.scene.events()

    def tell(self, story: list[str]) -> None:
        """Tell what happens from here on."""
        self._live.scene.story = story

    def photograph(self) -> tuple[int, Moment]:
        """Say what it is now; see World."""
        return self.key(), Moment(tuple(self.history), self._live)

    def photograph_anew(self) -> int:
        """Return the key alone."""
        return self._live.scene.key()

    def go_back(self, moment: Moment) -> None:
        """Be what it was."""
        self._live = moment.live
        if len(moment.live.scene.history) > len(moment.history):
            self._live = _Live(self._shape)
            for event in moment.history:
                self.replay(event)

    def calm_down(self, known: set[int]) -> None:
        """Let all come to its end; see World."""
        ends, path = self.now + _CALM, set[int]()
        while (key := self.key()) not in path and (event := self.calm_event()) and self.now <= ends:
            if key in known:
                return
            known.add(key)
            path.add(key)
            self.happen(event)
        if self.waits:
            raise Violation(f"a caller waits at {self.waits} for ever")
        self.check_end()


let_be(Home, Registry, Spends, GuardedStore, AsyncRateLimiter, Turns, Line, Scene)


async def _work(limiter: AsyncRateLimiter, kind: CallKind) -> bool:
    """Do what a caller does; return whether it may go ahead."""
    if len(kind.costs) == 1:
        ((key, cost),) = kind.costs.items()
        if kind.waits:
            await limiter.acquire(key, cost)
            return True
        answer = limiter.try_acquire(key, cost)
        return await (answer._work if isinstance(answer, Pending) else answer)
    if kind.waits:
        await limiter.acquire_all(kind.costs)
        return True
    return all((await limiter.decide_all(kind.costs)).values())


def _leased(bucket: Bucket) -> str:
    held = [f"{name} {each.held}" for name, each in bucket._table.instances.items() if each.held]
    return f" and leases {', '.join(held)}" if held else ""


def _shown(costs: Mapping[str, int]) -> str:
    return " and ".join(f"{cost} of {key}" for key, cost in costs.items())


def _told(body: Any) -> str:
    if isinstance(body, list):
        return f"spends {'; '.join(_shown({each.key: each.cost for each in group}) for group in body)}"
    key, _, what = body
    if isinstance(what, GiveBack):
        return f"gives back {what.tokens + what.refund} of {key}"
    return f"asks for {what.need} of {key}" if what.need else f"asks ahead for {key}"
