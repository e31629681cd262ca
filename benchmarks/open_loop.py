"""How long a call takes on a timetable, and the longest of thousands: ours, in turn with a lock and a subtraction.

    python benchmarks/open_loop.py [--url embedded://] [--json] [--quick] [--seconds N] [--round-trip MS] [--plot FILE]

A call is timed from just before to just after. How late it began is told apart: that is the work of the machine and of
the interpreter, who have to wake a thread and let it run. What else they do to a call the floor's row shows.
"""

import argparse
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.distance import distant
from benchmarks.figures import Figure, as_json, ran_on
from benchmarks.floor import Floor
from benchmarks.timetable import RATE, THREADS, Noted, turn

_BATCH = 1000
_QUOTA = "100_000/s burst 100_000"
_TURN = 2.75
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
_AT_MOST = {"p99": 5.0, "p99.9": 50.0}
_LONG = 50.0
"""Longer calls (us) are counted: if one call of each batch fetched the next, p99.9 would be on the verge."""


class Both(NamedTuple):
    """The times of our calls and of the floor's, and how often we asked the store."""

    ours: Noted
    floor: Noted
    asks: int


def observed(url: str, seconds: float) -> Both:
    """Make calls for so many seconds of each, in turns."""
    ours, floor, turns = Noted(), Noted(), max(1, round(seconds / _TURN))
    bare = Floor(round(turns * _TURN * RATE))
    with RateLimiter.from_url(
        url, _QUOTA, prefix=f"bench-{secrets.token_hex(4)}", sizer=FixedBatch(_BATCH), deadline=1.0
    ) as limiter:
        for _ in range(turns):
            turn(limiter.try_acquire, _TURN, ours)
            turn(bare.try_acquire, _TURN, floor)
        return Both(ours, floor, limiter.statistics().calls)


def open_loop(both: Both, where: str) -> Iterator[Figure]:
    """What of all this is to be told."""
    note = f"{RATE:,}/s of {THREADS} threads, {where}; {both.asks} store calls for {len(both.ours.took):,} and lead-ins"
    for name, share in _SHARES.items():
        took = quantile(both.ours.took, share)
        yield Figure(f"open loop: a call, {name}", took, "us", at_most=_AT_MOST.get(name), note=note)
        yield Figure(f"open loop: lock, test and subtraction, {name}", quantile(both.floor.took, share), "us")
        note = ""
    for of, noted in (("calls", both.ours), ("of the floor", both.floor)):
        long = 100 * sum(each > 1000 * _LONG for each in noted.took) / len(noted.took)
        yield Figure(f"open loop: longer than {_LONG:g} us, {of}", long, "%")
    for name, share in _SHARES.items():
        floor = f"{quantile(both.floor.late, share):,.0f} us before the floor's"
        yield Figure(f"open loop: began late, {name}", quantile(both.ours.late, share), "us", note=floor)


def quantile(nanoseconds: Sequence[int], share: float) -> float:
    """Return the microseconds that no more than this share of all stays below."""
    ranked = sorted(nanoseconds)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] / 1000


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--json", action="store_true", help="print one document instead of lines")
    parser.add_argument("--quick", action="store_true", help="one turn of each")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the two, as near and as far")
    parser.add_argument(
        "--round-trip", type=float, default=1.0, help="ms that a relay adds; the server is near as well"
    )
    parser.add_argument("--plot", type=Path, help="where to draw the distribution")
    args = parser.parse_args()
    seconds, seen = _TURN if args.quick else args.seconds, {}
    with ExitStack() as stack:
        url = args.url
        if url == "embedded://":
            url = stack.enter_context(closing(EmbeddedStore())).url
        seen["this server"] = observed(url, seconds)
        far = stack.enter_context(distant(url, args.round_trip / 1000))
        seen[f"the server {args.round_trip:g} ms away"] = observed(far, seconds)
    figures = [figure for where, both in seen.items() for figure in open_loop(both, where)]
    print(as_json(figures) if args.json else "\n".join([ran_on(), *map(str, figures)]))
    if args.plot:
        _draw(args.plot, seen)


def _draw(path: Path, seen: dict[str, Both]) -> None:
    # Drawing wants matplotlib, which measuring does not.
    from benchmarks.tails import draw

    lines = {"lock, test and subtraction": next(iter(seen.values())).floor.took}
    draw(path, lines | {f"a call, {where}": both.ours.took for where, both in seen.items()})


if __name__ == "__main__":
    main()
