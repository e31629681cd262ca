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
    """Requests that a key of a rule was asked for. By a shadow rule it would have refused those that it did."""

    admitted: int = 0
    refused: int = 0

    def row(self, **names: str) -> Row:
        asked = self.admitted + self.refused
        share = round(self.refused / asked, 5) if asked else 0.0
        return {**names, "admitted": self.admitted, "refused": self.refused, "refused_share": share}


@dataclass(slots=True)
class Result:
    """What a replay found."""

    requests: int = 0  # lines that were replayed
    admitted: int = 0  # requests that passed all rules
    begun: float = 0.0  # the instants of the first and the last one (seconds since 1970)
    ended: float = 0.0
    # requests of which a rule's key could not be made, and which it let pass, by name of the rule
    without_key: Counter[str] = field(default_factory=Counter)
    keys: dict[tuple[str, str], ReplayTally] = field(default_factory=dict)  # by name of the rule and key
    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)  # admitted and refused requests of each second
    calls: int = 0  # of the store; an estimate unless limiters decided all charges
    asked: int = 0  # charges that limiters decided

    def of_rule(self, name: str) -> ReplayTally:
        found = [tally for (rule, _), tally in self.keys.items() if rule == name]
        return ReplayTally(sum(each.admitted for each in found), sum(each.refused for each in found))


def whole(result: Result, unreadable: int, instances: int, speed: float) -> Row:
    """Return what happened to all requests; `speed` is requests replayed each second."""
    return {
        "requests": result.requests,
        "unreadable_lines": unreadable,
        "from": spelled(result.begun),
        "to": spelled(result.ended),
        "instances": instances,
        **ReplayTally(result.admitted, result.requests - result.admitted).row(),
        "store_calls": result.calls,
        "store_calls_per_second": round(result.calls / (result.ended - result.begun + 1.0), 1),
        "replayed_per_second": round(speed),
    }


def of_rules(rules: Rules, result: Result) -> list[Row]:
    """Return a row for each rule."""
    return [
        result.of_rule(each.name).row(rule=each.name, mode=each.mode) | {"without_key": result.without_key[each.name]}
        for each in rules
    ]


def of_keys(result: Result, count: int) -> list[Row]:
    """Return a row for each of the keys that were refused most."""
    refused = [(tally.refused, rule, key) for (rule, key), tally in result.keys.items() if tally.refused]
    worst = sorted(refused, key=lambda each: (-each[0], each[1:]))[:count]
    return [result.keys[rule, key].row(rule=rule, key=key) for _, rule, key in worst]


def binned(result: Result) -> tuple[int, list[tuple[int, float, float]]]:
    """Return the seconds of a bin, and of each bin when it begins and how many were admitted and refused a second."""
    first, last = min(result.seconds), max(result.seconds)
    width = max(1, -(-(last - first + 1) // _BINS))
    admitted, refused = Counter[int](), Counter[int]()
    for second, counts in result.seconds.items():
        begin = second - (second - first) % width
        admitted[begin], refused[begin] = admitted[begin] + counts[0], refused[begin] + counts[1]
    return width, [(at, admitted[at] / width, refused[at] / width) for at in range(first, last + 1, width)]


def draw(result: Result, path: str) -> None:
    """Write a picture, whose form the name's ending tells; raises ValueError without matplotlib."""
    try:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise ValueError("a plot needs matplotlib: pip install 'batchlimit[plot]', or leave --plot out") from error
    width, bins = binned(result)
    begins, *series = zip(*bins, strict=True)
    times: list[Any] = [datetime.fromtimestamp(at, UTC) for at in begins]
    figure, axes = plt.subplots(figsize=(9, 4))
    axes.stackplot(times, *series, labels=["admitted", "refused"], colors=["#4c9f70", "#d1495b"], step="post")
    axes.set_ylabel(f"requests per second, over {width} s")
    axes.legend(loc="upper left")
    axes.set_ylim(bottom=0)
    figure.autofmt_xdate()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
