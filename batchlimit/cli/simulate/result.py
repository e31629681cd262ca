"""What a replay found: how many requests each rule and key admitted and refused."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Requests that a rule was asked for, or one key of it.

    Attributes:
        admitted: admitted.
        refused: refused; by a shadow rule, those that it would have refused.
        without_key: of a rule: requests of which its key could not be made. It let them pass.
    """

    admitted: int = 0
    refused: int = 0
    without_key: int = 0


@dataclass(slots=True)
class Result:
    """What a replay found.

    Attributes:
        requests: lines that were replayed.
        admitted: requests that passed all rules.
        begun, ended: the instants of the first and the last one (seconds since 1970).
        without_key: requests of which a rule's key could not be made, by name of the rule.
        keys: by name of the rule and key.
        seconds: admitted and refused requests of each second.
        calls: of the store; those of charges that arithmetic decided, as far as a sample tells.
        asked: charges that limiters decided; arithmetic decided all others.
    """

    requests: int = 0
    admitted: int = 0
    begun: float = 0.0
    ended: float = 0.0
    without_key: dict[str, Tally] = field(default_factory=dict)
    keys: dict[tuple[str, str], Tally] = field(default_factory=dict)
    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)
    calls: int = 0
    asked: int = 0

    def of_rule(self, name: str) -> Tally:
        """Return the sum of a rule's keys."""
        found = [tally for (rule, _), tally in self.keys.items() if rule == name]
        sums = sum(each.admitted for each in found), sum(each.refused for each in found)
        return Tally(*sums, self.without_key[name].without_key)
