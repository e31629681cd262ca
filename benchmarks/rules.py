"""What it takes to find the rules of a request and their keys, without a limiter.

    python benchmarks/rules.py [--rounds 2000]

One number per line: microseconds of a call in the quickest round of 100 calls. On a busy machine the quickest round is
the one that was disturbed least. The target is 5 us for 4 rules that all apply.
"""

import argparse
import timeit
from collections.abc import Callable, Iterator

from batchlimit.rules import Request, Rule, Rules

CALLS = 100
TARGET_US = 5.0
IDENTITY = {"ip": "203.0.113.9", "user": "ann"}
REQUEST = Request("GET", "/api/items/7", IDENTITY)
FOUR = [
    Rule("address", "100/s", key="address:{ip}", match="/api/*"),
    Rule("user", "100/s", key="user:{user}", match="/api/*"),
    Rule("item", "100/s", key="item:{id}", match="GET /api/items/{id}"),
    Rule("all", "5000/s", key="all"),
]
OTHERS = [Rule(f"other{i}", "100/s", key=f"other{i}:{{ip}}", match=f"GET /api/things{i}/{{id}}") for i in range(1000)]


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what is measured, with its name."""
    four, many = Rules(FOUR), Rules([*FOUR, *OTHERS])
    odd = Request("GET", "/static/..//api/items/7", IDENTITY)
    address = Request("GET", "/api/items/7", {"ip": "2001:db8::1", "user": "a b"})
    flood = Request("GET", "/api/" + "x/" * 5000, {"ip": "203.0.113.9", "user": "x" * 10_000})
    yield "a call of nothing", lambda: None
    yield "4 of 4 rules apply", lambda: four.applicable(REQUEST)
    yield "4 of 1004 rules apply", lambda: many.applicable(REQUEST)
    yield "4 of 4, values to encode", lambda: four.applicable(address)
    yield "4 of 4, a path with other readings", lambda: four.applicable(odd)
    yield "3 of 4, a path and a user of 10 kB", lambda: four.applicable(flood)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    for name, call in calls():
        print(f"{name:36} {min(timeit.repeat(call, number=CALLS, repeat=rounds)) / CALLS * 1e6:6.2f} us")
    print(f"target: {TARGET_US} us for 4 of 4")


if __name__ == "__main__":
    main()
