"""A hundred clients of a provider of 100/s that strangers share: 429s, and how long it takes, beside what else is done.

    python -m benchmarks.strangers [--calls 60] [--real] [--json]

In virtual time, so alike on every machine: each client makes 60 calls that succeed, one after the other, 50 ms each.
Strangers call 20 times a second and 80 times, for 10 s each, and come never again. The provider tells what is left as
OpenAI does (a bucket), by draft 11 (windows), or not at all ("silent" says Retry-After, "mute" does not). Ours are ten
processes with ten clients each.

"as ATB", "as AATB": what is known of arXiv 2510.04516 from its abstract, rebuilt. They are no runs of its code.
`--real`: a bucket in real time as well, four processes of 25 clients over httpx2 and a real Valkey, for two minutes.
Exit status 1 if a target is missed.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from os import getloadavg

from benchmarks.figures import Figure, report
from benchmarks.strangers import real
from benchmarks.strangers.provider import PROVIDERS
from benchmarks.strangers.run import ASSISTED, BACKOFF, OURS, WHO, Run, simulated

_FEWER = 97.0
"""Percent of the 429s of exponential backoff that are not there any more: what the paper says of its own at best."""


def figures(calls: int, *, is_real: bool) -> Iterator[Figure]:
    """All of them."""
    for provider in PROVIDERS:
        runs = {}
        for who in WHO:
            runs[who] = simulated(provider, who, calls)
            yield from _of(f"{provider}: {who}", runs[who])
        yield from _beside(provider, runs)
    if is_real:
        runs = {}
        for who in real.WHO:
            runs[who] = real.measured(who, calls)
            yield from _of(f"real bucket: {who}", runs[who])
        yield from _beside("real bucket", runs)


def _of(name: str, run: Run) -> Iterator[Figure]:
    note = f"strangers refused {run.strangers:.1f} %, used of what they leave {run.used:.1f} %"
    if run.asked:
        note += f", calls of our store {run.asked:.2f} a success"
    yield Figure(f"{name}: 429s a success", run.refused, "%")
    yield Figure(f"{name}: done after", round(run.seconds, 1), "s", note=note)


def _beside(provider: str, runs: dict[str, Run]) -> Iterator[Figure]:
    tells = provider not in ("silent", "mute")
    for other in (BACKOFF, ASSISTED):
        if other in runs and runs[other].refused:
            fewer = 100 * (1 - runs[OURS].refused / runs[other].refused)
            least = _FEWER if tells and other == BACKOFF else 0.0 if tells else None
            yield Figure(f"{provider}: 429s fewer than {other}", fewer, "%", at_least=least)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ran = json.dumps({"clients": 100, "calls each": arguments.calls, "load": getloadavg()[0]})
    found = report(figures(arguments.calls, is_real=arguments.real), as_document=arguments.json, ran=ran)
    sys.exit(any(each.verdict == "short" for each in found))


if __name__ == "__main__":
    main()
