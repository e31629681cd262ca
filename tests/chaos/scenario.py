"""The scenarios: what befalls whom, for how long, and how much may then be admitted on top of the promise."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from batchlimit import Quota
from batchlimit.cli.plan import Front
from tests.chaos import fault
from tests.chaos.crew import Crew
from tests.chaos.fault import Fault, network, told
from tests.chaos.stage import Stage, single
from tests.relay import Relay

QUOTA = "400/s burst 100"
KEYS = 3
DEMAND = 1.5
"""Of the quotas' rate."""
Place = Callable[[Crew], AbstractContextManager[Stage]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table."""

    name: str
    fault: Fault
    policy: str = "closed"
    front: Front = Front.THREADS
    hosts: int = 4
    callers: int = 4
    seconds: float = 1.0
    """How long it lasts."""
    short: bool = False
    """Whether it belongs to the short form as well."""
    relayed: bool = False
    """Whether the hosts reach the server over the relay."""
    place: Place = single
    """Where it can be played."""
    excess: float = 0.0
    """What may be admitted on top of the promise, of a burst; inf: no bound."""
    why: str = ""
    """Why that is so, where it is not 0."""

    def __str__(self) -> str:
        return f"{self.name}, {self.policy}, {self.front}"

    @property
    def allowed(self) -> float:
        """Tokens of one key that may be admitted on top of the promise."""
        return self.excess * Quota.parse(QUOTA).bandwidths[0].burst

    @property
    def rate(self) -> float:
        """Tokens/s of all keys together that may be admitted."""
        return KEYS * Quota.parse(QUOTA).rate


_SHARE = 0.25
_ANEW = "the bucket begins anew, with one host's share"
_BESIDE = "hosts admit their shares beside the bucket, which fills up meanwhile"

SCENARIOS = (
    Scenario("nothing", fault.nothing),
    Scenario("nothing", fault.nothing, front=Front.ASYNC),
    # The network
    Scenario("round trips of 20 ms", network(lambda relay: relay.hold(0.02)), relayed=True),
    Scenario("round trips of 200 ms", network(lambda relay: relay.hold(0.2)), relayed=True),
    Scenario("5 kB/s", network(lambda relay: relay.throttle(5000)), relayed=True),
    Scenario("nothing passes", network(Relay.drop), relayed=True, short=True),
    Scenario("nothing passes", network(Relay.drop), relayed=True, front=Front.ASYNC, short=True),
    Scenario("nothing passes", network(Relay.drop), "local", relayed=True, excess=1, why=_BESIDE, short=True),
    Scenario("connecting hangs", network(lambda relay: relay.drop(connecting=True)), relayed=True),
    Scenario("connections are reset", network(Relay.reset), relayed=True, short=True),
    Scenario("connections are refused", network(Relay.refuse), relayed=True),
    Scenario("connections are half closed", network(Relay.half_close), relayed=True, short=True),
    Scenario("replies are lost", network(Relay.lose_replies), relayed=True, short=True),
    # The server
    Scenario("the server is killed, and is empty then", fault.killed, excess=_SHARE, why=_ANEW, short=True),
    Scenario(
        "the server is killed, and is empty then", fault.killed, front=Front.ASYNC, excess=_SHARE, why=_ANEW, short=True
    ),
    Scenario("the server is killed, and is empty then", fault.killed, "local", excess=1, why=_BESIDE, short=True),
    Scenario(
        "the server is killed, and is empty then",
        fault.killed,
        "open",
        excess=math.inf,
        why="all is admitted",
        short=True,
    ),
    Scenario("the same, one host of 8 threads", fault.killed, hosts=1, callers=8, excess=1, why=_ANEW),
    Scenario("killed and at once there again, empty", fault.emptied, excess=_SHARE, why=_ANEW, short=True),
    Scenario("the server is restarted with its data", fault.restarted, short=True),
    Scenario("the server stands still", fault.paused, short=True),
    Scenario("the server stands still", fault.paused, front=Front.ASYNC),
    Scenario("commands of 200 ms", fault.asleep),
    Scenario("a script that never ends", fault.stuck),
    Scenario("FLUSHALL", told("FLUSHALL"), excess=_SHARE, why=_ANEW, short=True),
    Scenario("SCRIPT FLUSH", told("SCRIPT", "FLUSH")),
    Scenario("no memory is left", fault.full, short=True),
    Scenario("made a replica", fault.read_only),
    # The hosts
    Scenario("a host is killed and replaced", fault.host_killed, short=True),
    Scenario("hosts stop past their leases", fault.hosts_stopped, seconds=2.0, short=True),
    Scenario("hosts stop past their leases", fault.hosts_stopped, seconds=2.0, front=Front.ASYNC),
)

SHORT = tuple(replace(each, seconds=each.seconds * 0.6) for each in SCENARIOS if each.short)
"""The short form: what is unlike the others."""
