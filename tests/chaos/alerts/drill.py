"""The drills: a fault, and the alerts that it is to set off."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.chaos.alerts import service
from tests.chaos.alerts.town import Town
from tests.chaos.fault import again_and_again
from tests.relay import Relay


@dataclass(frozen=True, slots=True)
class Drill:
    """One of them."""

    name: str
    fault: Callable[[Town], AbstractContextManager[None]]
    alerts: frozenset[str]

    def __str__(self) -> str:
        return self.name

    def hold(self, town: Town) -> tuple[float, float]:
        """Make the fault, see the alerts fire, end it, and see them end; return how many seconds each took."""
        town.await_alerts(quiet=self.alerts)
        with self.fault(town):
            fired = town.await_alerts(self.alerts)
        return fired, town.await_alerts(quiet=self.alerts)


def _network(change: Callable[[Relay], None]) -> Callable[[Town], AbstractContextManager[None]]:
    @contextmanager
    def fault(town: Town) -> Iterator[None]:
        change(town.relay)
        try:
            yield
        finally:
            town.relay.restore()

    return fault


def _emptied(town: Town) -> AbstractContextManager[None]:
    return again_and_again(lambda: town.server.ask("FLUSHALL"), every=0.5)


def _wrong(what: str) -> Callable[[Town], AbstractContextManager[None]]:
    @contextmanager
    def fault(town: Town) -> Iterator[None]:
        town.go_wrong(what)
        try:
            yield
        finally:
            town.go_wrong()

    return fault


@contextmanager
def _opened(town: Town) -> Iterator[None]:
    with town.admin() as admin:
        admin.open("search:*", "1h", why="a drill")
        try:
            yield
        finally:
            admin.unset("search:*")


@contextmanager
def _overrides_lost(town: Town) -> Iterator[None]:
    with town.admin() as admin:
        admin.set("search:*", "1/s", why="a drill")
        town.await_series('rate(batchlimit_requests_total{policy="search", result="refused"}[5s]) > 0')  # they obey it
        town.server.ask("FLUSHALL")
        try:
            yield
        finally:
            admin.unset("search:*")


DRILLS = (
    Drill(
        "the store is away",
        _network(Relay.refuse),
        frozenset({"BatchlimitStoreAway", "BatchlimitFallbackAdmits", "BatchlimitFleetUnseen"}),
    ),
    Drill("the store is 100 ms away", _network(lambda relay: relay.hold(0.1)), frozenset({"BatchlimitStoreSlow"})),
    Drill("the store is emptied", _emptied, frozenset({"BatchlimitBucketsLost"})),
    Drill("a flood of logins", _wrong(service.FLOOD), frozenset({"BatchlimitManyRefused", "BatchlimitBucketEmpty"})),
    Drill("requests of no rule", _wrong(service.STRANGERS), frozenset({"BatchlimitRequestsUnlimited"})),
    Drill("requests of nobody", _wrong(service.NAMELESS), frozenset({"BatchlimitKeysNotMade"})),
    Drill("slow work behind the limiter", _wrong(service.SLOW), frozenset({"BatchlimitConcurrencyFull"})),
    Drill("limits are left open", _opened, frozenset({"BatchlimitLimitsOpen"})),
    Drill("the store loses its overrides", _overrides_lost, frozenset({"BatchlimitOverridesLost"})),
)
