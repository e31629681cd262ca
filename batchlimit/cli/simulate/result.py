"""What a replay found: how many requests each rule and key admitted and refused, and the rows that tell it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from batchlimit.rules import Rules


@dataclass(slots=True)
class ReplayTally:
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
    without_key: dict[str, ReplayTally] = field(default_factory=dict)
    keys: dict[tuple[str, str], ReplayTally] = field(default_factory=dict)
    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)
    calls: int = 0
    asked: int = 0

    def of_rule(self, name: str) -> ReplayTally:
        """Return the sum of a rule's keys."""
        found = [tally for (rule, _), tally in self.keys.items() if rule == name]
        sums = sum(each.admitted for each in found), sum(each.refused for each in found)
        return ReplayTally(*sums, self.without_key[name].without_key)


Row = dict[str, Any]


def whole(result: Result, unreadable: int, instances: int, speed: float) -> Row:
    """Return what happened to all requests; `speed` is requests replayed each second."""
    refused = result.requests - result.admitted
    seconds = result.ended - result.begun + 1.0
    return {
        "requests": result.requests,
        "unreadable_lines": unreadable,
        "from": _instant(result.begun),
        "to": _instant(result.ended),
        "instances": instances,
        "admitted": result.admitted,
        "refused": refused,
        "refused_share": round(refused / result.requests, 5) if result.requests else 0.0,
        "store_calls": result.calls,
        "store_calls_per_second": round(result.calls / seconds, 1),
        "replayed_per_second": round(speed),
    }


def of_rules(rules: Rules, result: Result) -> list[Row]:
    """Return a row for each rule."""
    return [_row({"rule": rule.name, "mode": rule.mode}, result.of_rule(rule.name)) for rule in rules]


def of_keys(result: Result, count: int) -> list[Row]:
    """Return a row for each of the keys that were refused most."""
    refused = [(tally.refused, rule, key) for (rule, key), tally in result.keys.items() if tally.refused]
    worst = sorted(refused, key=lambda each: (-each[0], each[1:]))[:count]
    return [_row({"rule": rule, "key": key}, result.keys[rule, key], is_rule=False) for _, rule, key in worst]


def _row(names: Row, tally: ReplayTally, *, is_rule: bool = True) -> Row:
    asked = tally.admitted + tally.refused
    row = names | {"admitted": tally.admitted, "refused": tally.refused}
    row["refused_share"] = round(tally.refused / asked, 5) if asked else 0.0
    return row | {"without_key": tally.without_key} if is_rule else row


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
