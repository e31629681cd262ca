"""Which rules a request is charged to, as a replay remembers it: by target, and by who asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchlimit.cli.simulate.result import ReplayTally
from batchlimit.cli.simulate.screen import BucketTrust, Screen
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rule, Statuses
from batchlimit.rules.key import KeyTemplate


@dataclass(slots=True)
class ReplayedBucket:
    """One key; `name` is what the store has it under."""

    key: str
    name: str
    quota: Quota
    screen: Screen
    trust: BucketTrust


@dataclass(slots=True)
class Charge:
    """One rule that a request is charged to."""

    cost: int
    statuses: Statuses | None
    tally: ReplayTally
    bucket: ReplayedBucket


@dataclass(slots=True)
class Way:
    """A rule that matches a path, and the charges that were made of it.

    Attributes:
        rule: the rule.
        template: makes its key.
        parameters: of the path.
        by: what the key is made of besides them: "ip", "user", "both" or "none".
        known: charges by that; a Tally where no key can be made.
    """

    rule: Rule
    template: KeyTemplate
    parameters: Mapping[str, str]
    by: str
    known: "dict[str | tuple[str, str], Charge | ReplayTally]"


@dataclass(slots=True)
class Route:
    """The rules that match a method and a target.

    Attributes:
        ways: all of them.
        only: the one, where it is the only one, refuses, and charges whatever the status is.
    """

    ways: tuple[Way, ...]
    only: Way | None


def client_of(way: Way, ip: str, user: str) -> str | tuple[str, str]:
    """Return by what a charge of a rule is known."""
    match way.by:
        case "ip":
            return ip
        case "user":
            return user
        case "both":
            return ip, user
        case _:
            return ""
