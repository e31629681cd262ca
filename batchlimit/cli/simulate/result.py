"""What a replay found: how many requests each rule and key admitted and refused; as rows, and as a picture."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from batchlimit.quota.overrides.known import spelled
from batchlimit.rules import Rules

Row = dict[str, Any]
_BINS = 200


@dataclass(slots=True)
class ReplayTally:
    """Requests that a rule was asked for, or one key of it."""

    admitted: int = 0  # admitted
    refused: int = 0  # refused; by a shadow rule, those that it would have refused
    without_key: int = 0  # of a rule: requests of which its key could not be made. It let them pass.


@dataclass(slots=True)
class Result:
    """What a replay found."""

    requests: int = 0  # lines that were replayed
    admitted: int = 0  # requests that passed all rules
    begun: float = 0.0  # the instants of the first and the last one (seconds since 1970)
    ended: float = 0.0
    # requests of which a rule's key could not be made, by name of the rule
    without_key: Counter[str] = field(default_factory=Counter)
    keys: dict[tuple[str, str], ReplayTally] = field(default_factory=dict)  # by name of the rule and key
    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)  # admitted and refused requests of each second
    calls: int = 0  # of the store; those of charges that arithmetic decided, as far as a sample tells
    asked: int = 0  # charges that limiters decided; arithmetic decided all others

    def of_rule(self, name: str) -> ReplayTally:
        found = [tally for (rule, _), tally in self.keys.items() if rule == name]
        sums = sum(each.admitted for each in found), sum(each.refused for each in found)
        return ReplayTally(*sums, self.without_key[name])


def whole(result: Result, unreadable: int, instances: int, speed: float) -> Row:
    """Return what happened to all requests; `speed` is requests replayed each second."""
    refused = result.requests - result.admitted
    seconds = result.ended - result.begun + 1.0
    return {
        "requests": result.requests,
        "unreadable_lines": unreadable,
        "from": spelled(result.begun),
        "to": spelled(result.ended),
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
    rows = [_row({"rule": rule.name, "mode": rule.mode}, result.of_rule(rule.name)) for rule in rules]
    return [row | {"without_key": result.without_key[row["rule"]]} for row in rows]


def of_keys(result: Result, count: int) -> list[Row]:
    """Return a row for each of the keys that were refused most."""
    refused = [(tally.refused, rule, key) for (rule, key), tally in result.keys.items() if tally.refused]
    worst = sorted(refused, key=lambda each: (-each[0], each[1:]))[:count]
    return [_row({"rule": rule, "key": key}, result.keys[rule, key]) for _, rule, key in worst]


def _row(names: Row, tally: ReplayTally) -> Row:
    asked = tally.admitted + tally.refused
    share = round(tally.refused / asked, 5) if asked else 0.0
    return names | {"admitted": tally.admitted, "refused": tally.refused, "refused_share": share}


def binned(result: Result) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the seconds of a bin, and of each bin when it begins and how many were admitted and refused a second."""
    first, last = min(result.seconds), max(result.seconds)
    width = max(1, -(-(last - first + 1) // _BINS))
    bins = [[0, 0] for _ in range((last - first) // width + 1)]
    for second, (admitted, refused) in result.seconds.items():
        place = bins[(second - first) // width]
        place[0] += admitted
        place[1] += refused
    return width, [(first + at * width, one / width, two / width) for at, (one, two) in enumerate(bins)]


def draw(result: Result, path: str) -> None:
    """Write a picture, whose form the name's ending tells; raises ValueError without matplotlib, or of no requests."""
    try:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise ValueError("a plot needs matplotlib: pip install 'batchlimit[plot]', or leave --plot out") from error
    if not result.seconds:
        raise ValueError("there is nothing to plot: no line of the log is a request")
    width, bins = binned(result)
    times: list[Any] = [datetime.fromtimestamp(at, UTC) for at, _, _ in bins]
    figure, axes = plt.subplots(figsize=(9, 4))
    series = [admitted for _, admitted, _ in bins], [refused for _, _, refused in bins]
    axes.stackplot(times, *series, labels=["admitted", "refused"], colors=["#4c9f70", "#d1495b"], step="post")
    axes.set_ylabel(f"requests per second, over {width} s")
    axes.legend(loc="upper left")
    axes.set_ylim(bottom=0)
    figure.autofmt_xdate()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
