"""The watcher of a simulated fleet: after each step it checks every rule that the promise rests on.

The promise is that of a token bucket: admitted(t1, t2) <= burst + rate * (t2 - t1), for every window. All windows at
once are one bucket that begins full, refills at the rate and is drawn on by every admission (`Reference`): the promise
is broken when it would have to go below zero. What instances may still spend and what is in the real bucket must be
covered by it at every instant, so a token that was credited twice is seen long before somebody spends it.

Time is the server's, and never runs backwards: the promise is about the rate that the server's clock measures out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.fair_share import ALPHA, SILENT
from batchlimit.bucket.messages import Ask, Grant, Spend
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.overrides.overrides import InForce, Overrides
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Admit, Refuse
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.instance import Caller, Process, Witness
from tests.simulation.server import KEY, Server

_TRIPS = 3
"""A call without waiting has its answer after the trip under way, its own, and one more if that grant came too late."""
_WAKING = 1e-4
"""Seconds that the rounding of clocks may add."""
LONGEST_LEASE = 5 * SECOND
"""Longer than any lease, with what a grant may lie in the future: after it nobody spends what was leased before."""


class Violation(AssertionError):
    """A rule was broken; the message says which, and when."""


@dataclass(slots=True)
class Void:
    """Tokens for which the promise is void until an instant: a server lost its memory of them, or took its clock on."""

    tokens: float
    until: int


class Reference:
    """The bucket that the promise speaks of, in tokens."""

    __slots__ = ("_at", "_burst", "_rate", "_voids", "level")

    def __init__(self, rate: float, burst: float, now: int) -> None:
        self._rate, self._burst, self._at = rate / SECOND, burst, now
        self._voids: list[Void] = []
        self.level = burst

    def advance(self, now: int) -> None:
        self._voids = [void for void in self._voids if void.until > now]
        most = self._burst + sum(void.tokens for void in self._voids)
        self.level, self._at = min(most, self.level + (now - self._at) * self._rate), now

    def allow(self, tokens: float, held: float, now: int, lasting: int = LONGEST_LEASE) -> None:
        """Put `tokens` in at once; and have room for what is `held` until it must have been spent or have expired."""
        self._voids.append(Void(tokens + held, now + lasting))
        self.advance(now)
        self.level += tokens


def wrong_sum(bucket: Bucket) -> str:
    """Return what of a bucket does not add up; "": all does."""
    table, entries = bucket._table, bucket._table.instances.values()
    if table.outstanding != sum(each.held for each in entries):
        return "outstanding is not the sum of what instances hold"
    if table.weights != sum(each.weight for each in entries):
        return "the weights do not add up"
    if table.lasts != sum(each.weight * each.last for each in entries):
        return "the instances' last services do not add up"
    if table.active != sum(each.weight > 0 for each in entries):
        return "the active instances do not add up"
    for band, level in bucket._each():
        if level > max(0, band.burst - table.outstanding) * (1 + 1e-12) + 1e-9:
            return f"level {level} + outstanding {table.outstanding} > burst {band.burst}"
    return ""


class Watch(Witness):
    """Hears every admission and every answer, and looks at the fleet after each step; raises Violation."""

    def __init__(self, agenda: Agenda, server: Server, quota: Quota, instances: list[Process], timeout: float) -> None:
        """`timeout`: after so many seconds an instance gives up an answer."""
        self.trace: list[str] | None = None
        self._agenda, self._server, self._instances, self._timeout = agenda, server, instances, timeout
        self._exact = True
        now = server.now()
        self.references = [Reference(each.rate, each.burst, now) for each in quota.bandwidths]
        self._granted: set[tuple[str, int]] = set()  # a repetition is granted no new reserve
        self._spent: dict[str, list[tuple[int, int]]] = {}  # by instance: tokens of its spends, until when they count
        self._all: dict[str, tuple[bool, bool]] = {}  # who has had the whole burst: before the last ask, and after it
        self._trusted_from = self._flying = 0
        self._rules: dict[int, Overrides] = {}
        self._epoch = self._edition = self._heard = 0

    def changed(self, quotas: list[Quota]) -> None:
        """Quotas change in flight: what is used then counts as a share of the burst, and levels are scaled by it.

        So no window admits more than the largest burst and what is refilled at the largest part of a burst per second.
        """
        burst = max(each.burst for each in quotas)
        rate = burst * max(each.rate / each.burst for each in quotas)
        self.references = [Reference(rate, burst, self._server.now())]
        self._exact = False

    # What happens

    def spent(self, instance: Process, cost: int) -> None:
        now = self._server.now()
        for reference in self.references:
            reference.advance(now)
            reference.level -= cost
            if reference.level < -self._tolerance(reference):
                raise self._violation(f"the promise is broken by {-reference.level:.6f} tokens")
        self._say(f"{instance.name} admits a cost of {cost}")

    def passed(self, instance: Process, cost: int) -> None:
        """Only while an override says so, as far as the instance knows, is anything admitted without the bucket."""
        self._say(f"{instance.name} lets pass a cost of {cost}")
        if instance.reservoir.state.mode == "enforce" and not instance.was_disturbed:
            raise self._violation(f"{instance.name} lets {cost} pass, though the quota holds")

    def denied(self, instance: Process) -> None:
        if instance.reservoir.state.mode != "enforce":
            raise self._violation(f"{instance.name} refuses from memory in mode {instance.reservoir.state.mode}")

    def refunded(self, tokens: int) -> None:
        """Tokens that were spent are back, at an instance or in the bucket."""
        for reference in self.references:
            reference.advance(self._server.now())
            reference.level += tokens

    def asked(self, instance: Process, ask: Ask, grant: Grant) -> None:
        self._say(
            f"{instance.name} asks ({ask.seq}: need {ask.need}, queued {ask.queued}, want {ask.want}, held {ask.held},"
            f" back {ask.back}) and gets {grant.granted} in {grant.starts_in:.6f} s for {grant.lease:.6f} s,"
            f" kept {grant.kept}, retry {grant.retry_after:.6f}, level {grant.level}"
        )
        number = instance.name, ask.seq
        if number not in self._granted and grant.granted > ask.queued:
            self._check_reserve(grant)
        is_new = number not in self._granted
        self._granted.add(number)
        if is_new:
            self._check_obeyed(instance, ask)
        self._allow_spent(instance, grant)
        self._all[instance.name] = self._all.get(instance.name, (False, False))[1], self._has_all(instance.name)
        if ask.rules >= self._edition and (bucket := self._server.bucket) is not None:
            self._heard = bucket._now

    def charged(self, instance: Process, spend: Spend) -> None:
        """A spend makes room at once: its caller may be admitted until its answer would be too late."""
        self._say(f"{instance.name} spends {spend.cost}")
        self._flying += spend.cost
        for reference in self.references:
            reference.allow(0, spend.cost, self._server.now(), round(self._timeout * SECOND))
        if spend.rules >= self._edition and (bucket := self._server.bucket) is not None:
            self._heard = bucket._now

    def ended(self, instance: Process, caller: Caller) -> None:
        self._say(f"{instance.name} tells a caller of {caller.cost}: {caller.verdict}")
        due = caller.came + _TRIPS * self._timeout if caller.deadline == NO_WAIT else caller.deadline
        if instance.clock() > due + _WAKING and not instance.was_disturbed:
            raise self._violation(f"{instance.name} answers {instance.clock() - due:.6f} s too late")
        if isinstance(caller.verdict, Refuse) and instance.reservoir.state.mode != "enforce":
            raise self._violation(f"{instance.name} refuses in mode {instance.reservoir.state.mode}")
        if (
            isinstance(caller.verdict, Admit)
            and not caller.verdict.is_shadow
            and any(other.number < caller.number for other in instance.in_line)
        ):
            raise self._violation(f"{instance.name} admits a caller before one that came earlier")

    def lost(self, outstanding: int, debt: float) -> None:
        """The server is to lose its state: what instances hold, and what it owes for grants that lie in the future.

        The new bucket may begin full.
        """
        for reference in self.references:
            reference.allow(reference._burst + debt, outstanding + self._flying, self._server.now())
        self._trusted_from = self._agenda.now + LONGEST_LEASE

    def jumped(self, outstanding: int, seconds: float) -> None:
        """The server's clock went on: for the server some leases are over that their instances still hold.

        So are those of which the tokens counted as spent, and whose callers are yet to be admitted. Or it was set back:
        until it has caught up nothing is refilled, nor is a grant for later covered by what is. What was granted admits
        so much later, though it counts as spent.
        """
        before = self._server.now() - round(seconds * SECOND)
        held = outstanding + self._flying + self._spendable(before, self._spent)
        for reference in self.references:
            reference.allow(0, held, self._server.now())
        self._trusted_from = self._agenda.now + LONGEST_LEASE + round(abs(seconds) * SECOND)

    def ruled(self, revision: int, fields: Mapping[str, str]) -> None:
        """An operator has changed the overrides."""
        self._rules[revision] = Overrides.read(fields)
        self._say(f"overrides at revision {revision}: {[str(each) for each in self._rules[revision]]}")

    def filled(self, before: list[float], after: list[float], bursts: list[float], *, forgets: bool) -> None:
        """An operator has filled the bucket: once at most what was missing of the burst is admitted beyond the promise.

        Where quotas change, that is a share of the largest burst.
        """
        added = [new - old for old, new in zip(before, after, strict=True)]
        if not self._exact:
            added = [self.references[0]._burst * max(n / burst for n, burst in zip(added, bursts, strict=True))]
        for reference, tokens in zip(self.references, added, strict=True):
            reference.allow(tokens, 0.0, self._server.now())
        if forgets:
            self._edition = 0
        self._say(f"an operator fills the bucket from {before} to {after}")

    def _allow_spent(self, instance: Process, grant: Grant) -> None:
        """What is spent when it is granted makes room at once: a caller may be admitted by it until its lease ends."""
        bucket = self._server.bucket
        entry = bucket._table.instances.get(instance.name) if bucket else None
        if bucket is None or entry is None or not entry.held < entry.granted == grant.granted:
            return
        if entry.starts < bucket._now:
            return  # a repetition
        self._spent.setdefault(instance.name, []).append((entry.granted, bucket._epoch + entry.expires))
        for reference in self.references:
            reference.allow(0, entry.granted, self._server.now(), entry.expires - bucket._now)

    # What must be true

    def _check_obeyed(self, instance: Process, ask: Ask) -> None:
        """A bucket that is asked with a higher rank than its own has that from then on."""
        bucket = self._server.bucket
        entry = bucket._table.instances.get(instance.name) if bucket else None
        if bucket is None or entry is None or entry.seq != ask.seq:
            return  # a late one
        if (ask.rules, ask.revision) > bucket._rank:
            raise self._violation(f"the bucket has rank {bucket._rank} after an ask of {ask.rules, ask.revision}")

    def reloaded(self, instance: Process) -> None:
        """What the file says is asked with at once, unless an override outranks it."""
        state, wanted = instance.reservoir.state, instance.known.in_force.rule(KEY, KeyRule(instance.quota)).quota
        self._say(f"{instance.name} goes by a file that says {instance.quota}")
        if (state.own, state.code) != (wanted, instance.quota):
            raise self._violation(f"{instance.name} goes by {state.own} and {state.code}, not by {wanted} as its file")

    def check_known(self, instances: list[Process]) -> None:
        """After all have asked: each knows what stands in the store, and goes by it."""
        rules = self._server.store.rules
        overrides = self._rules.get(rules.revision, None if self._rules else Overrides())
        if overrides is None:
            return  # they were lost
        in_force = InForce.at(overrides, rules.read(-1).now)
        for instance in [each for each in instances if not each.gone]:
            state = instance.reservoir.state
            own, mode, *_ = in_force.rule(KEY, KeyRule(instance.quota))
            if instance.known.revision != rules.revision or (state.own, state.mode) != (own, mode):
                raise self._violation(
                    f"{instance.name} knows {instance.known}, asks with {state.own}, not {own}, and is in {state.mode}"
                )

    def _check_rank(self, bucket: Bucket) -> None:
        """The bucket obeys the newest override of which it has heard, whatever others ask with.

        Unless the overrides were lost, and whoever knows them was silent for a minute; it looks each quarter of that.
        """
        if bucket._epoch != self._epoch:
            self._epoch, self._edition, self._heard = bucket._epoch, 0, bucket._now
        is_lost = self._server.store.rules.revision != self._edition >> 14
        if is_lost and bucket._now - self._heard >= SILENT * 3 // 4:
            self._edition = 0
        edition = bucket._rank[0]
        if edition < self._edition:
            raise self._violation(f"the bucket obeys rules {edition} after {self._edition}")
        self._edition = edition
        overrides = Overrides(0, [each for each in self._rules.get(edition >> 14, Overrides()) if each.quota])
        if len(overrides) == 1 and edition % 2**14 == 0 and bucket._quota != next(iter(overrides)).quota:
            raise self._violation(f"the bucket obeys {bucket._quota}, and not the override {next(iter(overrides))}")

    def look(self) -> None:
        """Check every rule; what nobody touched since the last look needs no other one."""
        bucket = self._server.bucket
        if bucket is None:
            return
        if wrong := wrong_sum(bucket):
            raise self._violation(wrong)
        self._check_rank(bucket)
        for instance in self._instances:
            self._check_instance(instance)
            self._check_figures(instance)
        if self._exact:
            self._check_cover(bucket._levels)

    def _check_instance(self, instance: Process) -> None:
        if self._agenda.now < self._trusted_from or instance.gone:
            return
        counted, begun = self._counted(instance.name)
        if instance.held > counted:
            raise self._violation(f"{instance.name} holds {instance.held}, of which the bucket knows {counted}")
        if instance.spendable > begun:
            raise self._violation(f"{instance.name} could spend {instance.spendable}, of which {begun} have flowed in")

    def _check_figures(self, instance: Process) -> None:
        if (
            not instance.stopped
            and not instance.gone
            and instance.figures != (instance.admitted, instance.refused, len(instance.waiting))
        ):
            raise self._violation(
                f"{instance.name} counts {instance.figures}, and told {instance.admitted}, {instance.refused}"
            )

    def _counted(self, name: str) -> tuple[int, int]:
        """What the bucket counts as this instance's now, and how much of it may be spent now."""
        bucket = self._server.bucket
        entry = bucket._table.instances.get(name) if bucket else None
        if bucket is None or entry is None:
            return 0, 0
        now = max(bucket._now, self._server.clock - bucket._epoch)
        if entry.expires <= now:
            return 0, 0
        spent = self._spendable(bucket._epoch + now, [name])
        is_all = any(self._all.get(name, ())) or self._has_all(name)  # then a grant begins from its ask: see Lease
        return entry.held + spent, entry.held + spent - (entry.granted if entry.starts > now and not is_all else 0)

    def _has_all(self, name: str) -> bool:
        bucket = self._server.bucket
        entry = bucket._table.instances.get(name) if bucket else None
        return bucket is not None and entry is not None and entry.held >= bucket._bands[0].burst

    def _spendable(self, now: int, names: Iterable[str]) -> int:
        """How many tokens that count as spent may still admit callers of these instances."""
        return sum(tokens for name in names for tokens, until in self._spent.get(name, ()) if now < until)

    def _check_cover(self, levels: list[float]) -> None:
        """What is in the bucket, as it was last looked at, and what instances may spend: the reference has it all."""
        held = sum(instance.held for instance in self._instances)
        for reference, level in zip(self.references, levels, strict=True):
            reference.advance(self._server.now())
            if level + held > reference.level + self._tolerance(reference):
                raise self._violation(f"level {level} + {held} at instances > {reference.level} that are left: minted")

    def _check_reserve(self, grant: Grant) -> None:
        bucket = self._server.bucket
        assert bucket is not None
        outstanding = bucket._table.outstanding
        if any(outstanding > ALPHA * band.burst for band in bucket._bands):
            raise self._violation(f"{outstanding} tokens are leased after a reserve was granted: {grant}")

    def _tolerance(self, reference: Reference) -> float:
        """The bucket's clock and ours count whole microseconds, and doubles round."""
        return 1e-6 + 3 * reference._rate + 1e-9 * reference._burst

    def _violation(self, what: str) -> Violation:
        return Violation(f"at {self._agenda.now / SECOND:.6f} s: {what}; {self._server.bucket}")

    def _say(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._agenda.now / SECOND:11.6f}  {line}")
