"""Rows of what a replay found: the whole, each rule, and the keys that were refused most."""

from datetime import UTC, datetime
from typing import Any

from batchlimit.cli.simulate.result import Result, Tally
from batchlimit.rules import Rules

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


def _row(names: Row, tally: Tally, *, is_rule: bool = True) -> Row:
    asked = tally.admitted + tally.refused
    row = names | {"admitted": tally.admitted, "refused": tally.refused}
    row["refused_share"] = round(tally.refused / asked, 5) if asked else 0.0
    return row | {"without_key": tally.without_key} if is_rule else row


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
