"""How processes of different weights share a limit."""

from typing import Any

from benchmarks.markdown import percent, table
from benchmarks.shared_permits.crew import run
from benchmarks.shared_permits.replay import most_at_once, used
from tests.servers import any_binary, redis_server

SETTINGS: list[tuple[int, tuple[int, ...]]] = [
    (40, (1, 1, 1, 1)),
    (40, (1, 2, 3, 4)),
    (12, (1, 1, 4)),
    (3, (1, 2, 3, 4)),
    (1, (1, 3)),
]
"""A limit, and the weight of each process. Every process has more callers than there are permits."""


def held(limit: int, weights: tuple[int, ...], seconds: float = 5.0) -> tuple[int, float, list[float]]:
    """Return how many were held at once at most, the part that was used, and which part of that each process held."""
    with redis_server(any_binary()) as url:
        plan: dict[str, Any] = {"limit": limit, "callers": limit + 2, "hold": 0.02, "kind": "ours, tasks"}
        found = run(url, len(weights), seconds, weights=weights, **plan)
    parts = [used(each, limit, found.began, found.until) for each in found.by_process]
    whole = sum(parts)
    return most_at_once(found.holds), whole, [each / whole for each in parts]


def weights() -> bool:
    """Print a row for each setting; return whether never more than N were held."""
    print(table(["N", "weights", "most at once", "used", "held by each process", "by weight"], []), end="", flush=True)
    kept = True
    for limit, each in SETTINGS:
        most, part, shares = held(limit, each)
        kept = kept and most <= limit
        fair = [weight / sum(each) for weight in each]
        shown = [" : ".join(percent(share, 0) for share in parts) for parts in (shares, fair)]
        row = [str(limit), " : ".join(map(str, each)), str(most), percent(part, 0), *shown]
        print(f"| {' | '.join(row)} |", flush=True)
    return kept
