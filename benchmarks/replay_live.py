"""A log that processes live through on a real server, and that `batchlimit simulate` replays: do both admit as many?

    python -m benchmarks.replay_live [--processes 3] [--seconds 30] [--rate 600]

The log is synthetic: users of very different demand, a login by address, Poisson arrivals, exact times. Each
request goes to the process that its client belongs to, in both. Exit status 1 if a rule's admissions differ by more
than 1 %.
"""

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from contextlib import closing
from multiprocessing.connection import Connection
from zlib import crc32

from batchlimit import RateLimiter
from batchlimit.cli.simulate.log import Bad, Line, lines
from batchlimit.cli.simulate.replay import Replay, Spread
from batchlimit.rules import Request, Rules
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.markdown import table

_RULES = """
[[rules]]
name = "api"
quota = "20/s burst 40"
key = "api:{user}"
match = "/api/*"
[[rules]]
name = "search"
quota = "100/s burst 100"
key = "search"
match = "/search"
[[rules]]
name = "login"
quota = "30/minute"
key = "login:{ip}"
match = "POST /login"
"""
_MOST = 0.01


def synthetic(seconds: float, rate: float) -> list[str]:
    """Lines of JSON."""
    chance, at, made = random.Random(7), 0.0, []
    users = [f"user{n}" for n in range(50)]
    weights = [1 / (n + 1) for n in range(50)]
    kinds = [("GET", "/api/items"), ("GET", "/search"), ("POST", "/login")]
    while (at := at + chance.expovariate(rate)) < seconds:
        method, path = chance.choices(kinds, (60, 35, 5))[0]
        line = {"ts": 1_800_000_000 + at, "method": method, "path": path, "status": 200}
        user, ip = chance.choices(users, weights)[0], f"10.0.0.{chance.randrange(100)}"
        made.append(json.dumps(line | {"user": user, "ip": ip}))
    return made


def live(url: str, requests: list[Line], start: float, told: Connection) -> None:
    """Live through requests, and tell how many each rule admitted."""
    rules, admitted = Rules.loads(_RULES, format="toml"), Counter[str]()
    with RateLimiter.from_url(url, rules.quotas, deadline=1.0) as limiter:
        for at, method, path, ip, user, _ in requests:
            time.sleep(max(0.0, start + at - 1_800_000_000 - time.time()))
            for rule, key in rules.applicable(Request(method, path, {"ip": ip, "user": user})).applied:
                admitted[rule.name] += limiter.try_acquire(key)
    told.send(admitted)


def lived(requests: list[Line], processes: int) -> Counter[str]:
    """What so many processes admitted, by rule."""
    context = multiprocessing.get_context("spawn")
    with closing(EmbeddedServer()) as server:
        start, pipes, crew = time.time() + 5.0, [context.Pipe() for _ in range(processes)], []
        for n, (_, theirs) in enumerate(pipes):
            own = [line for line in requests if crc32(line[3].encode()) % processes == n]
            crew.append(context.Process(target=live, args=(server.url, own, start, theirs)))
            crew[-1].start()
        told = [ours.recv() for ours, _ in pipes]
        for each in crew:
            each.join()
    return sum(told, Counter[str]())


def main() -> int:
    """Compare, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=600.0, help="requests a second of all processes")
    chosen = parser.parse_args()
    log = synthetic(chosen.seconds, chosen.rate)
    requests = list(lines(iter(log), Bad()))
    rules = Rules.loads(_RULES, format="toml")
    by = {
        name: Replay(rules, chosen.processes, Spread.CLIENT, is_exact=exact).run(iter(requests))
        for name, exact in (("simulated", False), ("simulated --exact", True))
    }
    real = lived(requests, chosen.processes)
    rows, worst = [], 0.0
    for rule in rules:
        found = {name: result.of_rule(rule.name).admitted for name, result in by.items()}
        apart = {name: count / real[rule.name] - 1 for name, count in found.items()}
        worst = max(worst, *map(abs, apart.values()))
        cells = [f"{count} ({apart[name]:+.2%})" for name, count in found.items()]
        asked = by["simulated"].of_rule(rule.name)
        rows.append([rule.name, str(asked.admitted + asked.refused), str(real[rule.name]), *cells])
    print(table(["rule", "requests", "admitted live", *by], rows))
    return int(worst > _MOST)


if __name__ == "__main__":
    sys.exit(main())
