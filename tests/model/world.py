"""A world of few instances, one bucket and a network, in which everything that may happen is an event."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.overrides.plan import setting
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.waiter import Fetch
from batchlimit.stores.memory import MemoryStore
from tests.model.limiter import KEY, SECOND, Body, Caller, Limiter, Look, Order
from tests.model.shapes import Shape
from tests.model.state import Shot, Walk, put_back
from tests.model.watch import Watch, latest_spend, loosest
from tests.simulation.watch import Violation

BEGINS = 1_000_000_000_000
"""When a world begins (us): late enough that every instant is larger than every duration."""


class Part(NamedTuple):
    """What one instance was, or the store."""

    value: int
    shots: list[Shot]


class Photograph(NamedTuple):
    """What a world was. What nobody touched in between is the same part of two photographs."""

    now: int
    skew: int
    post: tuple["Message", ...]
    parts: tuple[Part, ...]
    rest: list[Shot]


_AT_THE_STORE = {"forget": "losses", "back": "backs", "fill": "fills", "override": "overrides"}
"""What may happen there, and what says how often."""
_STEP = 300_000
"""By how much (us) the clock of a store steps back."""
_CALM = 60 * SECOND
"""Nobody waits for longer than this (us) once nothing goes wrong any more."""


class Message(NamedTuple):
    """Something on its way. Of a copy nobody hears the answer."""

    place: int
    name: str
    body: Body
    sent: int
    stage: str
    """`going`, `coming` (with an `answer`), `lost`, or `copy`."""
    answer: Any = None


class Event(NamedTuple):
    """Something that may happen next: its kind, and where, or to which message."""

    kind: str
    place: int = 0
    cost: int = 0
    patience: float = 0.0
    priority: int = 1


class World:
    """All that there is; `left` says how often what still may happen."""

    __slots__ = (
        "_lasting", "_other", "_parts", "_quota", "_shape", "_skew", "_store", "_timeout", "_touched", "left",
        "limiters", "now", "post", "rules", "story", "watch",
    )  # fmt: skip

    def __init__(self, shape: Shape) -> None:
        self._shape, self._quota = shape, Quota.parse(shape.quota)
        self._timeout, self.now = round(shape.timeout * SECOND), BEGINS
        self._other = Quota.parse(shape.other or shape.quota)
        self.rules = "overrides" in shape.most
        self._skew = 0  # of the store's clock
        self._store = MemoryStore(clock=lambda: (self.now + self._skew + 0.5) / SECOND)
        apart = 0.0 if "forks" in shape.most else 1000.0  # a child has its parent's clock, others one of their own
        self.limiters = [
            Limiter(place, self._quota, _options(shape, place), self, apart * place) for place in range(shape.instances)
        ]
        for child in self.limiters[shape.instances - shape.most.get("forks", 0) :]:
            child.is_gone = True  # until its parent forks
        self._store.rules._began = -BEGINS / SECOND
        patience = self.limiters[0].keyspace.spending.patience
        self._lasting = max(latest_spend(each, patience) for each in (self._quota, self._other))
        self.watch = Watch(loosest(self._quota, self._other), shape.instances, self.now)
        self.post: list[Message] = []
        self.left = dict(shape.most)
        self.story: list[str] | None = None
        self._touched = set(range(shape.instances + 1))
        self._parts = [Part(0, [])] * len(self._touched)

    # What the instances need

    def send(self, place: int, body: Body) -> None:
        limiter = self.limiters[place]
        if isinstance(body, Fetch | list):
            self._check_quota(limiter, body.quota if isinstance(body, Fetch) else body[0].message.quota)
        self.post.append(Message(place, limiter.name, body, self.now, "going"))
        self._say(f"{limiter.name} {_told(body)}")

    def _check_quota(self, limiter: Limiter, quota: Quota) -> None:
        """An instance asks by the quota of its code, or by an override as long as that lasts."""
        changes = self._store.rules.log(1)
        is_set = bool(changes) and self._store.rules._now() <= changes[0].at + self._shape.lasts + 1e-6
        if quota != limiter.quota and not is_set:
            raise Violation(f"{limiter.name} asks by {quota}")

    def came(self, place: int, caller: Caller) -> None:
        self.watch.came(self.limiters[place], caller, self.now)

    def admitted(self, place: int, caller: Caller, *, memory: bool) -> None:
        self._say(f"{self.limiters[place].name} admits a caller of {caller.cost}{' from memory' if memory else ''}")
        self.watch.admitted(self.limiters[place], caller, self.now, memory=memory)

    def refused(self, place: int, caller: Caller, retry_after: float, *, memory: bool) -> None:
        by = " from memory" if memory else ""
        self._say(f"{self.limiters[place].name} refuses a caller of {caller.cost}{by}, to come in {retry_after:g} s")
        self.watch.refused(self.limiters[place], caller, retry_after, self.now)

    def paid(self, place: int, tokens: int) -> None:
        self._say(f"{self.limiters[place].name} pays {tokens} of what is owed")
        self.watch.paid(self.limiters[place], tokens, self.now)

    def holds(self, place: int, seconds: float) -> None:
        name = self.limiters[place].name
        self._say(f"{name} admits nobody for {seconds:g} s" if seconds else f"{name} admits callers again")
        spent = sum(_charged(each) for each in self.post if each.place == place)
        self.watch.holds(place, spent, self.now + round(seconds * SECOND))

    def failed(self, place: int, caller: Caller) -> None:
        self._say(f"{self.limiters[place].name} fails a caller of {caller.cost}")
        self.watch.failed(self.limiters[place], caller)

    def tell(self, story: list[str]) -> None:
        """Tell what happens from here on."""
        self.story = story

    # What may happen

    @property
    def bucket(self) -> Bucket | None:
        """The bucket, if there is one."""
        return self._store._buckets.get(KEY, (None, 0))[0]

    def events(self) -> Iterator[Event]:
        """What may happen next."""
        for at, message in enumerate(self.post):
            yield from self._events_of(at, message)
        for place, limiter in enumerate(self.limiters):
            yield from self._events_at(place, limiter)
        yield from (Event(kind) for kind, most in _AT_THE_STORE.items() if self.left.get(most))
        if not self.is_over and self._next() < math.inf:
            yield Event("tick")

    @property
    def is_settled(self) -> bool:
        """Whether nobody comes any more, and nothing goes wrong."""
        return not any(self.left.values())

    @property
    def waits(self) -> str:
        """At whom a caller waits; "": at nobody."""
        return next((each.name for each in self.limiters if each.callers), "")

    @property
    def is_over(self) -> bool:
        """Whether nobody calls, waits, or is asked any more."""
        busy = any(each.callers or each.is_stopped for each in self.limiters)
        return not (busy or self.left["calls"] or any(each.stage != "copy" for each in self.post))

    def calm_down(self, known: set[int]) -> None:
        """Let all come to its end, with nothing that goes wrong any more; raises Violation if somebody waits on.

        What leads to states that are `known` to end well need not be followed. Returns nothing; adds to them.
        """
        ends, self.post = self.now + _CALM, [each for each in self.post if each.stage != "copy"]
        path = set[int]()
        while (key := self.photograph()[0]) not in path and (event := self.calm_event()) and self.now <= ends:
            if key in known:
                return
            known.add(key)
            path.add(key)
            self.happen(event)
        if self.waits:
            raise Violation(f"a caller waits at {self.waits} for ever")

    def calm_event(self) -> Event | None:
        """What happens next if nothing goes wrong."""
        for place, limiter in enumerate(self.limiters):
            if limiter.is_stopped:
                return Event("wake", place)
        for at, message in enumerate(self.post):
            if message.stage in ("going", "coming") and self._hears(message):
                return Event("arrive" if message.stage == "going" else "answer", at)
        return Event("tick") if self._next() < math.inf else None

    def _events_of(self, at: int, message: Message) -> Iterator[Event]:
        faults = self.left.get("faults", 0)
        if message.stage in ("going", "copy"):
            yield Event("arrive", at)
        if message.stage == "coming" and self._hears(message):
            yield Event("answer", at)
        if faults and message.stage in ("going", "coming"):
            yield Event("lose", at)
        if faults and message.stage == "going":
            yield Event("double", at)
            yield Event("late", at)

    def _events_at(self, place: int, limiter: Limiter) -> Iterator[Event]:
        left = self.left
        if limiter.is_gone:
            return
        if limiter.is_stopped:
            yield Event("wake", place)
            return
        if left.get("calls"):
            yield from (Event("call", place, *each) for each in self._shape.callers)
        if left.get("cancels"):
            yield from (Event("cancel", place, at) for at in range(len(limiter.callers)))
        if left.get("refunds") and self._shape.refund <= self.watch.refundable(place):
            yield Event("refund", place, self._shape.refund)
        if left.get("debits"):
            yield Event("debit", place, 1)
        if left.get("stops"):
            yield Event("stop", place)
        if left.get("deaths"):
            yield Event("die", place)
        if left.get("closes"):
            yield Event("close", place)
        if left.get("forks"):
            yield Event("fork", place)
        if left.get("reloads") and limiter.quota is not self._other:
            yield Event("reload", place)
        if left.get("pauses"):
            yield Event("pause", place)
        if left.get("resumes") and not left.get("pauses"):
            yield Event("resume", place)

    def happen(self, event: Event) -> None:
        """Let it happen; raises Violation if a rule is broken by it."""
        getattr(self, f"_{event.kind}")(event)
        touched = [each for each in self.limiters if each.place in self._touched]
        self.watch.look(self.limiters, touched, self.bucket, self.now, self.now + self._skew)

    def _at(self, place: int) -> Limiter:
        """An instance that is to be touched."""
        self._touched.add(place)
        return self.limiters[place]

    def _call(self, event: Event) -> None:
        self.left["calls"] -= 1
        limiter = self._at(event.place)
        until = "" if event.patience == math.inf else f" {event.patience:g} s"
        waits = f" that waits{until}" if event.patience else ""
        urgent = f" of priority {event.priority}" if event.priority > 1 else ""
        self._say(f"a caller of {event.cost}{urgent} comes to {limiter.name}{waits}")
        limiter.call(event.cost, event.patience, event.priority)

    def _cancel(self, event: Event) -> None:
        self.left["cancels"] -= 1
        limiter = self._at(event.place)
        self._say(f"a caller of {limiter.callers[event.cost].cost} at {limiter.name} is interrupted")
        self.watch.disturbed()
        limiter.cancel(event.cost)

    def _refund(self, event: Event) -> None:
        self.left["refunds"] -= 1
        limiter = self._at(event.place)
        self._say(f"a caller at {limiter.name} takes back {event.cost}")
        self.watch.disturbed()
        self.watch.takes_back(event.place, event.cost)
        self.watch.refunded(limiter.refund(event.cost), self.now)

    def _debit(self, event: Event) -> None:
        self.left["debits"] -= 1
        limiter = self._at(event.place)
        self._say(f"a caller at {limiter.name} has used {event.cost} more than it was admitted for")
        self.watch.disturbed()
        limiter.debit(event.cost)

    def _stop(self, event: Event) -> None:
        self.left["stops"] -= 1
        limiter = self._at(event.place)
        limiter.stop()
        assert limiter.stopped_with is not None
        has = " with a token in hand" if limiter.stopped_with[1] != -math.inf else ""
        self._say(f"{limiter.name} is stopped{has}")
        self.watch.disturbed()

    def _wake(self, event: Event) -> None:
        limiter = self._at(event.place)
        self._say(f"{limiter.name} goes on")
        self._give_up(event.place)
        if limiter.wake():
            self._say(f"{limiter.name} admits the caller that had a token in hand")
            self.watch.paid(limiter, 1, self.now)

    def _die(self, event: Event) -> None:
        self.left["deaths"] -= 1
        limiter = self._at(event.place)
        self._say(f"{limiter.name} dies, and another process begins in its place")
        self._close_post(event.place)
        self.watch.began(event.place)
        limiter.begin()

    def _fork(self, event: Event) -> None:
        self.left["forks"] -= 1
        parent, child = self._at(event.place), self._at(len(self.limiters) - 1 - self.left["forks"])
        child.fork(parent)
        self._say(f"{parent.name} forks: {child.name} is its child")
        self.watch.began(child.place)

    def _close(self, event: Event) -> None:
        self.left["closes"] -= 1
        limiter = self._at(event.place)
        self._say(f"{limiter.name} closes")
        self._close_post(event.place)
        limiter.close()
        self._close_post(event.place)
        self.watch.began(event.place)

    def _close_post(self, place: int) -> None:
        """Nobody hears the answers any more."""
        self.post = [
            each._replace(stage="copy") if each.place == place else each
            for each in self.post
            if each.place != place or each.stage in ("going", "copy")
        ]

    def _forget(self, event: Event) -> None:
        self.left["losses"] -= 1
        bucket = self.bucket
        self._say("the store loses its data")
        if bucket is not None:
            self.watch.lost(bucket._table.outstanding, max(0.0, -min(bucket._levels)), self.now, 5 * SECOND)
        self._touched.add(len(self.limiters))
        self._store._buckets.clear()

    def _back(self, event: Event) -> None:
        self.left["backs"] -= 1
        self._skew -= _STEP
        before = 0 if self.bucket is None else math.floor(min(self.bucket._levels))
        if self._level(self._quota) < before:
            raise Violation(f"the bucket has {self._level(self._quota)} of {before} after a clock that steps back")
        self._say(f"the clock of the store steps back by {_STEP / SECOND:g} s")
        self.watch.disturbed()

    # What callers and operators do to the bucket

    def _pause(self, event: Event) -> None:
        self.left["pauses"] -= 1
        self._at(event.place).order(self._shape.pause)

    def _resume(self, event: Event) -> None:
        self.left["resumes"] -= 1
        self._at(event.place).order(0.0)

    def _fill(self, event: Event) -> None:
        self.left["fills"] -= 1
        self._touched.add(len(self.limiters))
        told = self._store.reset(KEY, forget=False)
        self._say(f"an operator fills the bucket; it has {self._holds()}")
        if told is not None and self.bucket is not None:
            self.watch.filled(told, self.bucket, self.now)

    def _reload(self, event: Event) -> None:
        self.left["reloads"] -= 1
        limiter = self._at(event.place)
        self._say(f"{limiter.name} goes by {self._other} from now on")
        self.watch.disturbed()
        limiter.reload(self._other)

    def _override(self, event: Event) -> None:
        """An operator sets another quota for a while."""
        self.left["overrides"] -= 1
        self._touched.add(len(self.limiters))
        ends = self._store.rules._now() + self._shape.lasts
        one = Override(KEY, self._other, until=ends)
        self._store.rules.change(setting(Overrides(), one, "", self._store.rules._now()))
        self._say(f"an operator sets {self._other} for {self._shape.lasts:g} s")
        self.watch.disturbed()

    # What becomes of messages

    def _hears(self, message: Message) -> bool:
        return self.limiters[message.place].runs

    def _arrive(self, event: Event) -> None:
        message = self.post.pop(event.place)
        answer = self._carry_out(message)
        if message.stage == "going":
            self.post.append(message._replace(stage="coming", answer=answer))

    def _answer(self, event: Event) -> None:
        message = self.post.pop(event.place)
        self._say(f"the answer reaches {message.name}")
        self._at(message.place).hear(message.body, message.answer)

    def _lose(self, event: Event) -> None:
        self.left["faults"] -= 1
        message = self.post[event.place]
        self._say(f"{'the answer to' if message.stage == 'coming' else 'a message of'} {message.name} is lost")
        self.watch.disturbed()
        self.post[event.place] = message._replace(stage="lost", answer=None)

    def _double(self, event: Event) -> None:
        self.left["faults"] -= 1
        message = self.post[event.place]
        self._say(f"a message of {message.name} is doubled")
        self.watch.disturbed()
        self.post.append(message._replace(stage="copy"))

    def _late(self, event: Event) -> None:
        self.left["faults"] -= 1
        message = self.post[event.place]
        self._say(f"a message of {message.name} comes late: nobody waits for its answer any more")
        self.watch.disturbed()
        self.post[event.place] = message._replace(stage="lost")
        self.post.append(message._replace(stage="copy"))

    def _carry_out(self, message: Message) -> Any:
        self._touched.add(len(self.limiters))
        body, name = message.body, message.name
        if isinstance(body, Fetch):
            grant = self._store.take(KEY, body.quota, body.ask)
            self._say(
                f"the bucket hears that {name} asks ({body.ask.seq}: need {body.ask.need}, want {body.ask.want}, held"
                f" {body.ask.held}), and grants {grant.granted}"
                + (f" in {grant.starts_in:g} s" if grant.starts_in else "")
                + (f", to come back in {grant.retry_after:g} s" if grant.retry_after else "")
                + f"; it has {self._holds()}"
            )
            assert self.bucket is not None
            self.watch.asked(name, body.ask, grant, self.bucket, self.now)
            if self._shape.other:
                self.watch.obeyed(self.bucket, body.ask)
            return grant
        if isinstance(body, GiveBack):
            entry = None if self.bucket is None else self.bucket._table.instances.get(name)
            is_first = self.bucket is not None and (entry is None or entry.seq < body.seq)
            credited = self._store.give_back(KEY, self._quota, body)
            self._say(f"the bucket takes back {credited} of {name}; it has {self._holds()}")
            self.watch.returned(body, is_first=is_first, now=self.now)
            return credited
        if isinstance(body, Order):
            return self._obey(body, name)
        if isinstance(body, Look):
            return self._store.rules.read(body.revision)
        before, looks = self._level(body[0].message.quota), self.limiters[message.place].keyspace.spending.looks
        rules, (told,) = self._store.spend([[each.message for each in body]], look=looks)
        spend = body[0].message
        how = "cannot tell" if told is None else "spends" if told[0].is_charged else "refuses"
        self._say(f"the bucket {how} {spend.cost} for {name}; it has {self._holds()}")
        self.watch.charged(spend, before, None if told is None else told[0], self.bucket, self.now, self._lasting)
        return told, rules

    def _obey(self, order: Order, name: str) -> float:
        """Pause the bucket, or lift its pause."""
        if not order.seconds:
            is_lifted = self._store.pauses.resume(KEY)
            self._say(f"the bucket hears that {name} resumes: it {'was' if is_lifted else 'is not'} paused")
            self.watch.resumed(self.bucket if is_lifted else None)
            return 0.0
        left = self._store.pauses.pause(KEY, self._quota, order.seconds, "")
        self._say(f"the bucket is paused for {left:g} s; it has {self._holds()}")
        assert self.bucket is not None
        charged = sum(_charged(each) for each in self.post)
        self.watch.paused(self.bucket, charged, self.now + round(left * SECOND), self.now)
        return left

    def _level(self, quota: Quota) -> int:
        """What a look at the bucket shows."""
        return self._store.peek(KEY, quota).level

    def _holds(self) -> str:
        """What is in the bucket, for people."""
        if self.bucket is None:
            return "never begun"
        levels = "; ".join(f"{level:g} of burst {band.burst}" for band, level in self.bucket._each())
        held = [f"{name} holds {each.held}" for name, each in self.bucket._table.instances.items() if each.held]
        return ", ".join([levels, *held])

    # Time

    def _next(self) -> float:
        """The next instant that matters; inf: there is none, or a message has to arrive first."""
        late = [each for each in self.post if each.stage in ("going", "coming") and self._hears(each)]
        if any(each.sent + self._shape.slowest <= self.now for each in late):
            return math.inf
        instants: list[float] = [each.sent + self._shape.slowest for each in late]
        instants += [each.sent + self._timeout for each in self.post if each.stage == "lost" and self._hears(each)]
        for limiter in self.limiters:
            instants += self._instants_of(limiter)
        if self.bucket is not None:
            instants += [each - self._skew for each in _ends(self.bucket)]
            if self.left["calls"] or any(each.callers for each in self.limiters):
                instants += [each - self._skew for each in _refills(self.bucket)]
        if self.watch.promise is not None:
            instants.append(self.watch.promise.at)
        return min([each for each in instants if each > self.now], default=math.inf)

    def _instants_of(self, limiter: Limiter) -> Iterator[float]:
        """When it does something by itself, or when its lease ends."""
        if limiter.is_gone:
            return
        if limiter.runs and (due := limiter.due()) < math.inf:
            yield max(self._instant(limiter, max(due, limiter.clock())), self.now + 1)
        if (reservoir := limiter.reservoir) is not None and reservoir.state.lease.held:
            yield self._instant(limiter, max(reservoir.tokens.expires, limiter.clock()))

    def _instant(self, limiter: Limiter, clock: float) -> float:
        """When (us) an instance's clock shows no less than this."""
        return self.now + math.ceil((clock - limiter.clock()) * SECOND - 1e-3)

    def _tick(self, event: Event) -> None:
        before, self.now = self.now, int(self._next())
        self._touched.update(range(len(self.limiters)))
        self._say(f"{(self.now - before) / SECOND:g} s go by")
        for place, limiter in enumerate(self.limiters):
            if limiter.runs:
                self._give_up(place)
                limiter.tick()

    def _give_up(self, place: int) -> None:
        """Take it that lost messages have no answer, once that has lasted."""
        since = self.now - self._timeout
        lost = [each for each in self.post if each.place == place and each.stage == "lost"]
        for message in [each for each in lost if each.sent <= since]:
            self.post.remove(message)
            self._say(f"{message.name} has no answer")
            self._at(place).hear(message.body, None)

    # States

    def photograph(self) -> tuple[int, Photograph]:
        """Say what it is now: a key, equal for worlds that go on alike, and what `go_back` needs."""
        for place in sorted(self._touched):
            self._parts[place] = self._part(place)
        self._touched.clear()
        told = Walk(self.now)
        alike = sorted((self._told_of(each), each.name) for each in self.limiters)
        order = {name: place for place, (_, name) in enumerate(alike)}
        letters = [each[2:] for each in self.post if each.name not in order]
        told.names = order
        told.along([each.body for each in self.post if isinstance(each.body, list)])  # what is spent may hear of it
        when = self.now - BEGINS if self.rules else 0  # of overrides the end is told by the time of day
        values = told.along([self.watch, letters, self.left, when])
        key = hash((tuple([part for part, _ in alike]), self._of_store(order), values))
        return key, Photograph(self.now, self._skew, tuple(self.post), tuple(self._parts), told.shots)

    def photograph_anew(self) -> int:
        """Return the key by all that there is, whatever was touched."""
        self._touched.update(range(len(self._parts)))
        return self.photograph()[0]

    def go_back(self, photograph: Photograph) -> None:
        """Be what it was."""
        self.now, self._skew, self.post = photograph.now, photograph.skew, list(photograph.post)
        for place, part in enumerate(photograph.parts):
            if place in self._touched or self._parts[place] is not part:
                put_back(part.shots)
                self._parts[place] = part
        put_back(photograph.rest)
        self._touched.clear()

    def _part(self, place: int) -> Part:
        """Look at one instance, or else at the store."""
        walk = Walk(self.now)
        if place == len(self.limiters):  # its shots alone are looked at here
            walk.along([self._store])
            return Part(0, walk.shots)
        limiter = self.limiters[place]
        limiter.due()  # who is asked what is due tidies up
        walk.names = {limiter.name: 0}
        return Part(hash(walk.along([limiter], limiter.clock(), limiter.numbers.sent)), walk.shots)

    def _told_of(self, limiter: Limiter) -> int:
        """What an instance is, and what is on its way to and from it."""
        most = self._shape.refund if self.left.get("refunds") else 0
        letters = sorted([self._letter(limiter, each) for each in self.post if each.name == limiter.name])
        role, part = self._shape.role(limiter.place), self._parts[limiter.place]
        since = round(limiter.clock() - limiter.since, 6) if self._shape.other else 0
        return hash((role, part.value, tuple(letters), self.watch.of(limiter, most, self.now), since))

    def _of_store(self, order: dict[str, int]) -> int:
        """What is in the store, with the instances in this order."""
        walk = Walk(self.now + self._skew)
        walk.names = order
        walk.last_numbers = {each.name: each.numbers.sent for each in self.limiters}
        one = self.bucket if self._shape.other else None
        obeyed = None if one is None else (one._since, one._rank, one._version)
        return hash((obeyed, walk.along([self._store])))

    def _letter(self, limiter: Limiter, message: Message) -> int:
        state, walk = None if limiter.reservoir is None else limiter.reservoir.state, Walk(self.now)
        walk.names = {limiter.name: 0}
        is_awaited = state is not None and state.in_flight is message.body
        whose = [each.begun is message.body for each in limiter.callers]
        last = limiter.keyspace.spending._in_flight.get(KEY)
        is_last = isinstance(message.body, list) and last is not None and last() is message.body[0]
        return hash((is_awaited, *whose, is_last, walk.along(message[2:], limiter.clock(), limiter.numbers.sent)))

    def _say(self, line: str) -> None:
        if self.story is not None:
            self.story.append(f"{(self.now - BEGINS) / SECOND:9.6f}  {line}")


def _options(shape: Shape, place: int) -> Options:
    return Options(sizer=shape.sizers[shape.role(place)], idle_after=shape.idle_after, deadline=shape.timeout)


def _ends(bucket: Bucket) -> Iterator[float]:
    """When a lease ends."""
    for entry in bucket._table.instances.values():
        if entry.held or entry.granted:
            yield bucket._epoch + entry.expires


def _refills(bucket: Bucket) -> Iterator[float]:
    """When another whole token is there."""
    for band, level in bucket._each():
        if (whole := math.floor(level + 1e-9) + 1) <= band.burst - bucket._table.outstanding:
            yield bucket._epoch + bucket._time + math.ceil((whole - level) / band.rate)


def _charged(message: Message) -> int:
    """What a spend has taken whose caller is to hear of it."""
    if message.stage != "coming" or not isinstance(message.body, list) or message.answer[0] is None:
        return 0
    return message.body[0].message.cost if message.answer[0][0].is_charged else 0


def _told(body: Body) -> str:
    if isinstance(body, Fetch):
        return f"asks for {body.ask.need}" if body.ask.need else "asks ahead"
    if isinstance(body, GiveBack):
        return f"gives back {body.tokens + body.refund}"
    if isinstance(body, Look):
        return "looks at the overrides"
    if isinstance(body, Order):
        return f"pauses the key for {body.seconds:g} s" if body.seconds else "resumes the key"
    return f"spends {body[0].message.cost}"
