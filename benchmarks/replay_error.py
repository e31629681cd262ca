"""How far `batchlimit simulate` is from `--exact`, over rules and logs that are made up.

    python -m benchmarks.replay_error --lines 40000

Five sets of rules, each with four kinds of traffic: evenly and in waves, whole seconds and exact times, any instance
and one for each client. How often a user comes falls with its number (Zipf).
"""

import argparse
import math
import random
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from batchlimit.cli.simulate.log import Line
from batchlimit.cli.simulate.replay import Replay, Spread
from batchlimit.cli.simulate.result import Result
from batchlimit.rules import Rule, Rules
from benchmarks.figures import Figure, ran_on, report

_BEGAN, _WAVE = 1_700_000_000.0, 30.0
_LOGIN = Rule("login", "5/minute", key="login:{ip}", match="POST /login")
_RULES = {
    "40/s by user": [Rule("api", "40/s", key="api:{user}")],
    "login, 20/s by address": [_LOGIN, Rule("all", "20/s burst 40", key="ip:{ip}")],
    "login, 20/s by user, 300/s for all": [_LOGIN, Rule("api", "20/s", key="a:{user}"), Rule("g", "300/s", key="g")],
    "300/s for all": [Rule("g", "300/s burst 100", key="g")],
    "30/s; 600/minute by user": [Rule("api", "30/s; 600/minute", key="api:{user}")],
}


class _Traffic(NamedTuple):
    users: int
    rate: float
    is_whole: bool
    swing: float
    instances: int
    by: Spread


_TRAFFIC = [
    _Traffic(300, 1000.0, False, 0.0, 4, Spread.RANDOM),
    _Traffic(300, 200.0, True, 0.8, 4, Spread.RANDOM),
    _Traffic(1000, 2000.0, True, 0.0, 20, Spread.RANDOM),
    _Traffic(50, 500.0, False, 0.8, 10, Spread.CLIENT),
]


def lines(traffic: _Traffic, count: int) -> Iterator[Line]:
    chance, at = random.Random("log"), _BEGAN
    weights = list(accumulate(1.0 / (each + 1) for each in range(traffic.users)))
    for user in chance.choices(range(traffic.users), cum_weights=weights, k=count):
        at += 1.0 / (traffic.rate * (1.0 + traffic.swing * math.sin(at / _WAVE)))
        method, path = chance.choice([("GET", "/"), ("POST", "/login"), ("GET", "/api/x"), ("GET", "/api/y")])
        yield float(int(at)) if traffic.is_whole else at, method, path, f"10.0.0.{user}", f"u{user}", 200


def replayed(rules: list[Rule], traffic: _Traffic, log: list[Line], *, is_exact: bool) -> Result:
    return Replay(Rules(rules), traffic.instances, traffic.by, is_exact=is_exact).run(log)


def errors(rules: list[Rule], traffic: _Traffic, count: int) -> tuple[float, float, float]:
    """Return by how much all admissions, those of one rule at worst, and the calls of the store are too many."""
    log = list(lines(traffic, count))
    fast, exact = (replayed(rules, traffic, log, is_exact=is_exact) for is_exact in (False, True))
    by_rule = [(fast.of_rule(each.name).admitted, exact.of_rule(each.name).admitted) for each in rules]
    worst = max((one / other - 1.0 for one, other in by_rule if other), key=abs)
    return fast.admitted / exact.admitted - 1.0, worst, fast.calls / exact.calls - 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40_000)
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    chosen = parser.parse_args()
    figures = [
        Figure(f"{name}; {traffic.rate:g}/s, {traffic.instances} instances, {traffic.by}: {what}", error * 100, "%")
        for name, rules in _RULES.items()
        for traffic in _TRAFFIC
        for what, error in zip(("all", "worst rule", "calls"), errors(rules, traffic, chosen.lines), strict=True)
    ]
    report(figures, as_document=chosen.json, ran=f"{chosen.lines:,} lines; {ran_on()}")


if __name__ == "__main__":
    main()
