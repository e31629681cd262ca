"""How many requests a second `batchlimit simulate` replays, of a log that is made up.

    python -m benchmarks.replay_speed --lines 5000000 --rate 58      # a day: users rarely ask for more than they may
    python -m benchmarks.replay_speed --lines 400000 --rate 1000     # most requests of the busiest users are refused
    python -m benchmarks.replay_speed --lines 60000 --rate 1000 --profile

300 users, 40/s each; how often each of them comes falls with its number (Zipf). The lines are not read from a file.
"""

import argparse
import cProfile
import pstats
import random
import time
from collections.abc import Iterator
from itertools import accumulate

from batchlimit.cli.simulate.log import Line
from batchlimit.cli.simulate.replay import Replay
from batchlimit.rules import Rule, Rules
from benchmarks.figures import Figure, ran_on, report

_USERS, _BEGAN = 300, 1_700_000_000.0


def lines(count: int, rate: float) -> Iterator[Line]:
    """Make up so many lines, `rate` of them a second."""
    chance = random.Random("log")  # not the seed of a replay: it would choose the instance by the user
    users = [f"u{each}" for each in range(_USERS)]
    weights = list(accumulate(1.0 / (each + 1) for each in range(_USERS)))
    for number in range(count):
        (user,) = chance.choices(users, cum_weights=weights)
        yield (_BEGAN + number / rate, "GET", "/api/x", "192.0.2.1", user, 200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--rate", type=float, default=1000.0, help="lines of a second of the log")
    parser.add_argument("--exact", action="store_true", help="reservoirs decide every request")
    parser.add_argument("--profile", action="store_true", help="say which functions took the time")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    chosen = parser.parse_args()
    log = list(lines(chosen.lines, chosen.rate))
    replay = Replay(Rules([Rule("api", "40/s", key="api:{user}", match="/api/*")]), is_exact=chosen.exact)
    profile = cProfile.Profile()
    began = time.process_time()
    found = profile.runcall(replay.run, log) if chosen.profile else replay.run(log)
    took = time.process_time() - began
    if chosen.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    figures = [
        Figure("requests replayed, per second of processor time", chosen.lines / took, "1/s"),
        Figure("decided by limiters", found.asked / found.requests, "of all"),
        Figure("calls of the store", found.calls / found.requests, "of all"),
        Figure("refused", (found.requests - found.admitted) / found.requests, "of all"),
    ]
    report(figures, as_document=chosen.json, ran=f"{chosen.lines:,} lines at {chosen.rate:g}/s; {ran_on()}")


if __name__ == "__main__":
    main()
