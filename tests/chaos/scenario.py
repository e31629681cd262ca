"""The scenarios: a fault, how long it lasts, and how much may be admitted on top of the quota."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from benchmarks.audited_fleet.plan import Api
from tests.chaos import fault
from tests.chaos.crew import Crew
from tests.chaos.fault import Fault, network, told
from tests.chaos.stage import Stage, single
from tests.relay import Relay

RATE, BURST = 400, 100
QUOTA = f"{RATE}/s burst {BURST}"
KEYS = 3
DEMAND = 1.5
"""Of the quotas' rate."""
DEADLINE = 0.05
"""What a call of the store may take (s), unless told otherwise."""
_LATE = 0.25
"""Seconds: by then every process has asked for every key once more, were it refused all the time."""
Place = Callable[[Crew], AbstractContextManager[Stage]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table."""

    name: str
    fault: Fault
    policy: str = "closed"
    api: Api = Api.THREADS
    processes: int = 4
    callers: int = 4
    seconds: float = 1.0
    """How long it lasts."""
    short: bool = False
    """Whether it belongs to the short form as well."""
    relayed: bool = False
    """Whether the processes reach the server over the relay."""
    place: Place = single
    """Where it can be played."""
    allowed: float = 0.0
    """Tokens of one key that may be admitted on top of the promise; inf: no bound."""
    loses: bool = False
    """Whether the store forgets the buckets."""
    patience: float = 1.0 + 2 * DEADLINE
    """Seconds that no caller may have waited, but for what the machine stood still: the store, or the network before
    it, may have been late when a process first connected; and then a call waits for an ask of another, and its own."""

    def __str__(self) -> str:
        return f"{self.name}, {self.policy}, {self.api}"

    @property
    def rate(self) -> float:
        """Tokens/s of all keys together that may be admitted."""
        return float(KEYS * RATE)

    def most(self, seconds: float) -> float:
        """Tokens of all keys together that an outage of so many seconds may admit.

        Processes that admit their shares have what is left of their leases when it begins, and of the buckets.
        """
        return 1.05 * self.rate * seconds + KEYS * BURST if self.policy == "local" else math.inf

    def excess(self, stalled: float) -> float:
        """Tokens of one key that may be admitted on top of the promise where the machine stood still for so long (s).

        Where that is nothing, it is nothing. Else a process that stood still may have counted as gone, so that a bucket
        began anew with more than a quarter, and it noticed as much later that the store was back.
        """
        late = BURST + RATE * stalled if stalled > _LATE else 0.0
        return self.allowed + late if self.allowed else 0.0

    def longest(self, stalled: float) -> float:
        """Seconds that no caller may have waited: a call passes threads and processes, and each of them may be late."""
        return self.patience + 10 * stalled


ANEW = BURST / 4
"""A bucket that was lost begins anew, with the share of one process of four."""
BESIDE = BURST + RATE * 0.75 * 1.6
"""When the store is back its bucket has filled up; and processes notice one after the other. Until the last one does, a
probe (1.1 s) and a grant of its own (0.5 s) later, up to three of the four admit their shares beside the bucket."""

SCENARIOS = (
    Scenario("nothing", fault.nothing),
    Scenario("nothing", fault.nothing, api=Api.ASYNC),
    # The network
    Scenario("round trips of 20 ms", network(lambda relay: relay.hold(0.02)), relayed=True),
    Scenario("round trips of 200 ms", network(lambda relay: relay.hold(0.2)), relayed=True),
    Scenario("5 kB/s", network(lambda relay: relay.throttle(5000)), relayed=True),
    Scenario("nothing passes", network(Relay.drop), relayed=True, short=True),
    Scenario("nothing passes", network(Relay.drop), relayed=True, api=Api.ASYNC, short=True),
    Scenario("nothing passes", network(Relay.drop), "local", relayed=True, seconds=2.0, allowed=BESIDE),
    Scenario("connecting hangs", network(lambda relay: relay.drop(connecting=True)), relayed=True),
    Scenario("connections are reset", network(Relay.reset), relayed=True, short=True),
    Scenario("connections are refused", network(Relay.refuse), relayed=True),
    Scenario("connections are half closed", network(Relay.half_close), relayed=True, short=True),
    Scenario("replies are lost", network(Relay.lose_replies), relayed=True, short=True),
    # The server
    Scenario("killed, and empty when back", fault.killed, allowed=ANEW, loses=True, short=True),
    Scenario("killed, and empty when back", fault.killed, api=Api.ASYNC, allowed=ANEW, loses=True, short=True),
    Scenario("killed, and empty when back", fault.killed, "local", seconds=2.0, allowed=BESIDE, loses=True),
    Scenario("killed, and empty when back", fault.killed, "open", allowed=math.inf, loses=True),
    Scenario("the same, one process of 8 threads", fault.killed, processes=1, callers=8, allowed=BURST, loses=True),
    Scenario("killed and at once there again, empty", fault.emptied, allowed=ANEW, loses=True, short=True),
    Scenario("the server is restarted with its data", fault.restarted, short=True),
    Scenario("the server stands still", fault.paused, short=True),
    Scenario("the server stands still", fault.paused, api=Api.ASYNC),
    Scenario("commands of 200 ms", fault.asleep),
    Scenario("a script that never ends", fault.stuck),
    Scenario("FLUSHALL", told("FLUSHALL"), allowed=ANEW, loses=True, short=True),
    Scenario("SCRIPT FLUSH", told("SCRIPT", "FLUSH")),
    Scenario("no memory is left", fault.full, short=True),
    Scenario("made a replica", fault.read_only),
    # The processes
    Scenario("a process is killed and replaced", fault.process_killed, short=True),
    Scenario("processes stop past their leases", fault.processes_stopped, seconds=2.0, patience=math.inf, short=True),
    Scenario(
        "processes stop past their leases", fault.processes_stopped, seconds=2.0, patience=math.inf, api=Api.ASYNC
    ),
)

SHORT = tuple(replace(each, seconds=each.seconds * 0.6) for each in SCENARIOS if each.short)
"""The short form: what is unlike the others."""
