"""A world of one shared limit: few instances with their real LocalSlots, the real SlotTable, and a network between.

It is small, so a photograph of it is a pickle. Its key is a list of values: instants count from now, counts of slots
from what went back, tokens by their order, and a lease that has ended is as good as none.
"""

import io
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchlimit.bucket.slot_table import TICK, SlotAsk, SlotPush, SlotReply, SlotTable
from batchlimit.concurrency.partition import Partition
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.shared.held_slots import SEQUENCE, Place, SlotWaiter
from batchlimit.shared.local_slots import LocalSlots, Shared, forget
from tests.model.shapes import SlotShape
from tests.model.slot_watch import SlotWatch, is_lost
from tests.model.world import BEGINS, Event
from tests.simulation.watch import Violation

_LETTERS = "ABC"
_ENDS = {"stop": "stops", "die": "deaths", "close": "closes"}
_SECOND = 1_000_000
_RESTART = 300_000
"""Microseconds that a store is away that loses its data."""
_CALM = 60 * _SECOND
_LOOK, _RETRY, _DEADLINE = 600_000, 100_000, 200_000
"""Microseconds: what `Engine` draws at random, and until a lost message counts as failed."""


def _ring() -> None:
    """Nobody sleeps here."""


class Names:
    """The names of one instance's leases."""

    def __init__(self, who: str) -> None:
        self.who, self.count = who, 0

    def __call__(self) -> str:
        self.count += 1
        return f"{self.who}.{self.count}"


@dataclass
class Process:
    """One instance, its permits, and who waits there."""

    place: int
    slots: LocalSlots
    permits: list[Place] = field(default_factory=list)
    waiting: list[SlotWaiter] = field(default_factory=list)
    asking: int = 0
    """The number of the ask under way; 0: none."""
    hasty: list[SlotWaiter] = field(default_factory=list)
    """Who waits for the answer to that and no longer."""
    births: int = 0
    is_stopped: bool = False
    is_closed: bool = False

    @property
    def name(self) -> str:
        """By which the store knows it, without the number of its lease."""
        return self.slots.held.name.split(".")[0]


class Letter(NamedTuple):
    """Something on its way: an ask, a reply or a push. Of a copy nobody hears the answer."""

    place: int
    name: str
    stage: str
    """`going`, `coming`, `told`, `lost` or `copy`."""
    sent: int
    number: int
    body: Any


@dataclass
class Scene:
    """All that there is."""

    now: int
    skew: int
    processes: list[Process]
    table: SlotTable
    post: list[Letter]
    left: dict[str, int]
    watch: SlotWatch
    asked: int = 0


class SlotWorld:
    """All that there is, and what may happen next; see World."""

    def __init__(self, shape: SlotShape) -> None:
        self._shape = shape
        self._scene = Scene(BEGINS, 0, [], SlotTable(), [], dict(shape.most), SlotWatch(shape.limit))
        parents = shape.instances - shape.most.get("forks", 0)
        self._scene.processes = [self._born(place, 0) for place in range(parents)]
        self.story: list[str] | None = None

    def _born(self, place: int, births: int) -> Process:
        names = Names(_LETTERS[place] + "'" * births)
        slots = LocalSlots("key", Shared(self._shape.limit, lease=self._shape.lease), names, 1)
        return Process(place, slots, births=births)

    def tell(self, story: list[str]) -> None:
        """Tell what happens from here on."""
        self.story = story

    # What may happen

    def events(self) -> Iterator[Event]:
        """What may happen next."""
        scene, left = self._scene, self._scene.left
        for at, letter in enumerate(scene.post):
            yield from self._events_of(at, letter)
        for process in scene.processes:
            yield from self._events_at(process)
        if left.get("losses"):
            yield Event("forget")
        if left.get("backs"):
            yield Event("back")
        if not self._is_over and self._next() < math.inf:
            yield Event("tick")

    @property
    def is_settled(self) -> bool:
        """Whether nobody comes any more, and nothing goes wrong."""
        return not any(self._scene.left.values())

    @property
    def _is_over(self) -> bool:
        scene = self._scene
        busy = any(each.waiting or each.permits or each.is_stopped for each in scene.processes)
        return not (busy or scene.left["calls"] or any(each.stage != "copy" for each in scene.post))

    def _events_of(self, at: int, letter: Letter) -> Iterator[Event]:
        faults = self._scene.left.get("faults", 0)
        if letter.stage in ("going", "copy") or (letter.stage in ("coming", "told") and self._hears(letter)):
            yield Event("arrive", at)
        if faults and letter.stage in ("going", "coming", "told"):
            yield Event("lose", at)
            yield Event("late", at)
        if faults and letter.stage in ("going", "told"):
            yield Event("double", at)

    def _events_at(self, process: Process) -> Iterator[Event]:
        left, place = self._scene.left, process.place
        if process.is_stopped:
            yield from (Event("wake", place, is_late) for is_late in (0, 1))
            return
        if self._is_due(process):
            yield Event("look", place)
        if left["calls"] and not process.is_closed:
            yield from (Event("call", place, 1, patience) for patience in self._shape.patience)
        yield from (Event("leave", place, at) for at in range(len(process.permits)))
        if left.get("cancels"):
            yield from (Event("cancel", place, at) for at in range(len(process.waiting)))
        if left.get("forks") and not process.is_closed:
            yield Event("fork", place)
        yield from (Event(kind, place) for kind, most in _ENDS.items() if left.get(most))

    def happen(self, event: Event) -> None:
        """Let it happen; raises Violation if a rule is broken by it."""
        if (most := _ENDS.get(event.kind, f"{event.kind}s")) in self._scene.left:
            self._scene.left[most] -= 1
        getattr(self, f"_{event.kind}")(event)
        scene = self._scene
        scene.watch.look(scene.processes, scene.table, scene.now, scene.now + scene.skew)

    def calm_down(self, known: set[int]) -> None:
        """Let all come to its end with nothing that goes wrong any more: permits end, and everybody is served."""
        scene, ends = self._scene, self._scene.now + _CALM
        scene.post, path = [each for each in scene.post if each.stage != "copy"], set[int]()
        while (key := self.photograph_anew()) not in path and (event := self.calm_event()) and scene.now <= ends:
            if key in known:
                return
            known.add(key)
            path.add(key)
            self.happen(event)
        if self.waits:
            raise Violation(f"a caller waits at {self.waits} for ever")
        later = scene.now + scene.skew + 2 * round(self._shape.lease * _SECOND)
        reply, _ = scene.table.lend(SlotAsk("Z.1", self._shape.limit, _SECOND, target=self._shape.limit), later)
        if reply.granted < self._shape.limit:
            raise Violation(f"{self._shape.limit - reply.granted} slots do not come back")

    @property
    def now(self) -> int:
        """The instant (us)."""
        return self._scene.now

    @property
    def waits(self) -> str:
        """At whom a caller waits; "": at nobody."""
        return next((each.name for each in self._scene.processes if each.waiting), "")

    def calm_event(self) -> Event | None:
        """What happens next if nothing goes wrong."""
        for process in self._scene.processes:
            if process.is_stopped:
                return Event("wake", process.place)
            if self._is_due(process):
                return Event("look", process.place)
            if process.permits:
                return Event("leave", process.place, 0)
        for at, letter in enumerate(self._scene.post):
            if letter.stage in ("going", "coming", "told"):
                return Event("arrive", at)
        return Event("tick") if self._next() < math.inf else None

    # Callers

    def _call(self, event: Event) -> None:
        process, now = self._scene.processes[event.place], self._clock(event.place)
        waits = " that waits" if event.patience else ""
        self._say(f"a caller comes to {process.name}{waits}")
        if (place := process.slots.enter(now)) is not None:
            self._hold(process, place)
        elif not event.patience and process.slots.is_in_vain:
            self._say(f"{process.name} refuses it")
        else:
            waiter = SlotWaiter(_ring, event.patience > 0, 0, None)
            process.slots.line_up(waiter, now)
            process.waiting.append(waiter)
        self._attend(process)

    def _leave(self, event: Event) -> None:
        process = self._scene.processes[event.place]
        self._say(f"a permit at {process.name} ends")
        place = process.permits.pop(event.cost)
        self._scene.watch.left(place)
        self._wake_all(process, process.slots.leave, place, self._clock(event.place))

    def _cancel(self, event: Event) -> None:
        process = self._scene.processes[event.place]
        self._say(f"a caller that waits at {process.name} gives up")
        waiter = process.waiting.pop(event.cost)
        self._wake_all(process, process.slots.give_up, waiter, self._clock(event.place))

    def _hold(self, process: Process, place: Place) -> None:
        self._say(f"{process.name} gives a permit")
        process.permits.append(place)
        self._scene.watch.held(process.name, place)

    def _wake_all(self, process: Process, change: Callable[..., object], *args: Any) -> None:
        change(*args)
        for waiter in process.slots.line.ready:
            process.slots.line.unwoken.pop(waiter)
            if waiter not in process.waiting:
                continue
            if waiter.place is not None and any(each in process.slots.line for each in process.waiting[:1]):
                raise Violation(f"{process.name} serves a caller before one that came earlier")
            process.waiting.remove(waiter)
            if waiter.place is not None:
                self._hold(process, waiter.place)
            else:
                self._say(f"{process.name} refuses a caller that waited")
        self._attend(process)

    # The thread of a process, see Engine

    def _attend(self, process: Process) -> None:
        """Ask if that is due, one ask at a time."""
        slots, now = process.slots, self._clock(process.place)
        if not self._is_due(process):
            return
        slots.expire(now)
        if slots.is_over:
            return
        ask = slots.ask(now)
        self._scene.asked += 1
        process.asking = self._scene.asked
        process.hasty = [each for each in process.waiting if not each.is_patient]
        self._say(f"{process.name} asks for {ask.target}: {ask.returned} returned, {ask.held} held")
        self._scene.post.append(Letter(process.place, process.name, "going", self._scene.now, process.asking, ask))

    def _is_due(self, process: Process) -> bool:
        return not (process.asking or process.is_stopped) and process.slots.due <= self._clock(process.place)

    def _look(self, event: Event) -> None:
        """The thread of a process that was stopped runs again."""
        self._give_up(self._scene.processes[event.place])
        self._attend(self._scene.processes[event.place])

    def _hear(self, letter: Letter) -> None:
        process, now = self._scene.processes[letter.place], self._clock(letter.place)
        if letter.stage == "told":
            self._say(f"{process.name} is told: {letter.body.granted} granted, {letter.body.keep} to keep")
            self._wake_all(process, process.slots.hear, letter.body, now)
            return
        ask, reply = letter.body
        self._say(f"the answer reaches {process.name}")
        process.asking = 0
        asked, process.hasty = process.hasty, []

        def answered() -> None:
            process.slots.answer(ask, reply, letter.sent * 1000, now)
            if process.slots.line:
                process.slots.due = min(process.slots.due, now + _LOOK * 1000)

        self._wake_all(process, answered)
        if any(each in process.waiting for each in asked):
            raise Violation(f"a caller that does not wait has no verdict by the answer to {process.name}")

    def _fail(self, process: Process) -> None:
        self._say(f"{process.name} has no answer")
        process.asking = 0
        retry = self._clock(process.place) + _RETRY * 1000
        self._wake_all(process, process.slots.fail, StoreUnavailable("no answer"), retry, 0)

    # Messages

    def _arrive(self, event: Event) -> None:
        scene = self._scene
        letter = scene.post.pop(event.place)
        if letter.stage in ("coming", "told"):
            self._hear(letter)
        elif isinstance(letter.body, SlotAsk):
            self._carry_out(letter, letter.body)
        elif self._hears(letter):  # a push that comes late
            self._hear(letter._replace(stage="told"))

    def _carry_out(self, letter: Letter, ask: SlotAsk) -> None:
        scene = self._scene
        reply, pushes = scene.table.lend(ask, scene.now + scene.skew)
        self._say(
            f"the store hears that {ask.instance} asks for {ask.target}, and has granted it {reply.granted}; of"
            f" {reply.limit} it lends {reply.lent}, {reply.keep} to keep, token {reply.token - BEGINS // TICK}"
        )
        scene.watch.lent(ask, reply, scene.table)
        for push in pushes:
            self._push(push)
        if letter.stage == "going":
            scene.post.append(letter._replace(stage="coming", body=(ask, reply)))

    def _push(self, push: SlotPush) -> None:
        for process in self._scene.processes:
            if process.name == push.instance.split(".")[0]:
                self._scene.post.append(Letter(process.place, process.name, "told", self._scene.now, 0, push))

    def _lose(self, event: Event) -> None:
        self._spoil(event, "lost", copy=False)

    def _late(self, event: Event) -> None:
        self._spoil(event, "comes late", copy=True)

    def _spoil(self, event: Event, how: str, *, copy: bool) -> None:
        """Let a message be lost to whom it is for; a `copy` arrives some time."""
        scene = self._scene
        scene.left["faults"] -= 1
        scene.watch.is_calm = False
        letter = scene.post.pop(event.place)
        self._say(f"a message of {letter.name} is {how}" if how == "lost" else f"a message of {letter.name} {how}")
        if letter.stage != "told":
            scene.post.append(letter._replace(stage="lost"))
        if copy and letter.stage != "coming":
            scene.post.append(letter._replace(stage="copy", number=0))

    def _double(self, event: Event) -> None:
        scene = self._scene
        scene.left["faults"] -= 1
        scene.watch.is_calm = False
        letter = scene.post[event.place]
        self._say(f"a message of {letter.name} is doubled")
        scene.post.append(letter._replace(stage="copy", number=0))

    # Processes and the store

    def _stop(self, event: Event) -> None:
        process = self._scene.processes[event.place]
        process.is_stopped = True
        self._scene.watch.is_calm = False
        self._say(f"{process.name} is stopped")

    def _wake(self, event: Event) -> None:
        process = self._scene.processes[event.place]
        process.is_stopped = False
        self._say(f"{process.name} goes on{', its thread not yet' if event.cost else ''}")
        if not event.cost:
            self._give_up(process)
            self._attend(process)

    def _die(self, event: Event) -> None:
        scene = self._scene
        old = scene.processes[event.place]
        scene.watch.is_calm = False
        self._say(f"{old.name} dies, and another process begins in its place")
        self._close_post(event.place)
        scene.processes[event.place] = self._born(event.place, old.births + 1)

    def _fork(self, event: Event) -> None:
        """See `Engine.after_fork`: the child has its parent's permits, and slots of its own."""
        parent, child = self._scene.processes[event.place], self._born(len(self._scene.processes), 0)
        slots, child.permits = pickle.loads(_photograph((parent.slots, parent.permits)))
        forget(slots)
        self._say(f"{parent.name} forks: {child.name} is its child")
        self._scene.processes.append(child)

    def _close(self, event: Event) -> None:
        process = self._scene.processes[event.place]
        self._say(f"{process.name} closes")
        process.is_closed = True
        self._scene.watch.is_calm = False
        self._wake_all(process, process.slots.close, LimiterClosed("closed"), self._clock(event.place))

    def _close_post(self, place: int) -> None:
        """Nobody hears the answers any more."""
        self._scene.post = [
            each._replace(stage="copy", number=0) if each.place == place else each
            for each in self._scene.post
            if each.place != place or (each.stage in ("going", "copy") and isinstance(each.body, SlotAsk))
        ]

    def _forget(self, event: Event) -> None:
        scene = self._scene
        scene.left["losses"] -= 1
        self._say("the store loses its data")
        scene.table = SlotTable()
        scene.now += _RESTART  # so that the tokens of the new table are larger
        scene.watch.lost(scene.now, round(self._shape.lease * _SECOND))
        scene.post = [each._replace(stage="lost") for each in scene.post if each.stage in ("going", "coming")]
        self._look_all()

    def _back(self, event: Event) -> None:
        self._scene.skew -= 300_000
        self._say("the clock of the store steps back by 0.3 s")

    # Time

    def _clock(self, place: int) -> int:
        """What an instance's clock shows (ns): it began at another time than the store's."""
        return self._scene.now * 1000

    def _hears(self, letter: Letter) -> bool:
        process = self._scene.processes[letter.place]
        return not process.is_stopped and process.name == letter.name

    def _next(self) -> float:
        """The next instant that matters; inf: there is none, or a message has to arrive first."""
        scene = self._scene
        if any(each.stage in ("going", "coming", "told") and self._hears(each) for each in scene.post):
            return math.inf
        if any(self._is_due(each) for each in scene.processes):
            return math.inf
        instants = [each.sent + _DEADLINE for each in scene.post if each.stage == "lost"]
        for process in scene.processes:
            slots, lease = process.slots, process.slots.held.lease
            instants += [] if lease.ended or not slots.held.count else [math.ceil(lease.until / 1000)]
            if not (process.is_stopped or process.asking or math.isinf(slots.due)):
                instants.append(math.ceil(slots.due / 1000))
        instants += [each.ends - scene.skew for each in scene.table._by_name.values()]
        return min([each for each in instants if each > scene.now], default=math.inf)

    def _tick(self, event: Event) -> None:
        scene = self._scene
        scene.watch.wait(scene.processes, scene.now)
        before, scene.now = scene.now, int(self._next())
        self._say(f"{(scene.now - before) / _SECOND:g} s go by")
        self._look_all()

    def _look_all(self) -> None:
        for process in self._scene.processes:
            if not process.is_stopped:
                self._give_up(process)
                self._attend(process)

    def _give_up(self, process: Process) -> None:
        """Take it that a lost message has no answer, once that has lasted."""
        since = self._scene.now - _DEADLINE
        lost = [each for each in self._scene.post if each.place == process.place and each.stage == "lost"]
        for letter in [each for each in lost if each.sent <= since]:
            self._scene.post.remove(letter)
            if letter.number == process.asking:
                self._fail(process)

    def _say(self, line: str) -> None:
        if self.story is not None:
            self.story.append(f"{(self._scene.now - BEGINS) / _SECOND:9.6f}  {line}")

    # States

    def photograph(self) -> tuple[int, bytes]:
        """Say what it is now: a key, equal for worlds that go on alike, and what `go_back` needs."""
        return hash(self._told()), _photograph(self._scene)

    def photograph_anew(self) -> int:
        """Return the key."""
        return hash(self._told())

    def go_back(self, photograph: bytes) -> None:
        """Be what it was."""
        self._scene = pickle.loads(photograph)

    def _told(self) -> tuple[Any, ...]:
        return _Told(self._scene).values


class _Camera(pickle.Pickler):
    """Pickles a scene; all who wait for a key are of one partition, which is no part of it."""

    def reducer_override(self, seen: object) -> Any:
        return (getattr, (SlotWaiter, "partition")) if isinstance(seen, Partition) else NotImplemented


def _photograph(seen: object) -> bytes:
    film = io.BytesIO()
    _Camera(film, pickle.HIGHEST_PROTOCOL).dump(seen)
    return film.getvalue()


class _Told:
    """What a scene is, in values that are equal where it goes on alike."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._order = {process.slots.held.name: process for process in scene.processes}
        self._turns = {
            at: turn for turn, at in enumerate(sorted({each.since for each in scene.table._by_name.values()}))
        }
        self._next_token = max(scene.table.token + 1, (scene.now + scene.skew) // TICK)
        tokens = {each.slots.held.last for each in scene.processes} | {self._next_token}
        tokens |= {token for each in scene.post for token in _tokens_of(each)} | {scene.watch.most // SEQUENCE}
        self._ranks = {token: rank for rank, token in enumerate(sorted(tokens))}
        self.values = (
            tuple([self._process(each) for each in scene.processes]),
            tuple(sorted([self._borrower(each) for each in scene.table._by_name.values()])),
            tuple(sorted([self._letter(each) for each in scene.post])),
            tuple(scene.left.items()), scene.watch.told(scene.now), scene.skew,
            self._ranks[scene.watch.most // SEQUENCE], self._ranks[self._next_token],
        )  # fmt: skip

    def _name(self, name: str) -> tuple[str, int, int]:
        """An instance, how old this lease of it is, and from which number its slots count."""
        if (process := self._order.get(name)) is not None:
            return process.name, 0, process.slots.held.returned
        who, number = name.split(".")
        last = next((each.split(".")[1] for each in self._order if each.split(".")[0] == who), number)
        return who, int(last) - int(number), 0

    def _process(self, process: Process) -> tuple[Any, ...]:
        slots, held = process.slots, process.slots.held
        now, line = self._scene.now * 1000, process.slots.line
        lease = (held.lease.until and held.lease.until - now, held.lease.renewal - now, held.lease.ended)
        permits = [(each in held.places, each.lease is held.lease, is_lost(each, now)) for each in process.permits]
        waiting = [
            (each.is_patient, each.asks < slots.sent, each.asks < slots._answered, each in line)
            for each in process.waiting
        ]
        next_token = held.last * SEQUENCE + held._sequence + 1
        return (
            held.count, held._leaving, held._most, held.keep, held._allowance, len(held.places),
            held.first_ask - now if held.lease.until == 0 else 0, "over" if is_over(lease) else lease,
            tuple(permits), tuple(waiting), len(line), slots._told,
            max(slots.due - now, -1), slots._is_closing, next_token > self._scene.watch.most,
            self._ranks[held.last], max(0, held.last + 1 - self._next_token),
            process.asking > 0, process.is_stopped, process.is_closed, process.name,
        )  # fmt: skip

    def _borrower(self, one: Any) -> tuple[Any, ...]:
        *name, base = self._name(one.name)
        now = self._scene.now + self._scene.skew
        waits = min(now - one.since, self._scene.table._lease), self._turns[one.since]
        return (
            *name, one.held, max(0, one.ends - now), one.wants, waits,
            one.idle, one.limit, one.granted - base, one.told,
        )  # fmt: skip

    def _letter(self, letter: Letter) -> tuple[Any, ...]:
        process = self._scene.processes[letter.place]
        is_awaited = letter.number == process.asking if letter.number else False
        since = self._scene.now - letter.sent if letter.stage in ("going", "coming", "lost") else 0
        body = letter.body if isinstance(letter.body, tuple) and type(letter.body) is tuple else (letter.body,)
        return (letter.stage, letter.name, is_awaited, since, *[self._body(each, body[0]) for each in body])

    def _body(self, body: SlotAsk | SlotReply | SlotPush, first: Any) -> tuple[Any, ...]:
        *name, base = self._name(first.instance)
        if isinstance(body, SlotAsk):
            return (*name, body.returned - base, *body[5:])
        return (*name, body.granted - base, self._ranks[body.token], *body[3 if isinstance(body, SlotPush) else 2 :])


def is_over(lease: tuple[float, float, bool]) -> bool:
    """Whether a lease that begins so many ns from now has ended."""
    return lease[2] or lease[0] < 0


def _tokens_of(letter: Letter) -> Iterator[int]:
    if isinstance(letter.body, SlotPush):
        yield letter.body.token
    elif not isinstance(letter.body, SlotAsk):
        yield letter.body[1].token
