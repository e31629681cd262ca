"""Small limits over several limiter instances, beside one plain bucket that every call asks.

    python -m benchmarks.everyday [--quick | --real] [--jobs N] [--url embedded://]

Simulated with the real rules, which spend and lease as they do in the product: the same every time, on every machine.
Virtual time, equal arrivals, a store 1 ms away. A cell is the share of what the plain bucket admits, where the
instances call `try_acquire` at .9, 2 and 10 times the rate: evenly in one row, at random in the next. Clients that come
again when they were told to are simulated too. A whole run writes benchmarks/results/everyday.md and everyday.svg.

`--real`: some of it on a real server, by processes. Exit status 1 if something is not as it is to be.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby, product
from os import cpu_count
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.small_limits.cells import BURSTS, INSTANCES, QUICK, RATES, Found, cells, measured
from benchmarks.small_limits.told import AMISS, POLLED, simulated

_RESULTS = Path(__file__).resolve().parent / "results"
_FLEETS = (1, 4, 8)
"""Instances that a client polls."""


def lines(found: Sequence[Found]) -> Iterator[list[str]]:
    """Yield the rows of the table: the parts for each number of instances, demand by demand."""
    for (quota, arrivals), row in groupby(found, lambda one: (one.cell.quota, one.cell.arrivals)):
        by_fleet = groupby(row, lambda one: one.cell.instances)
        yield [quota, arrivals, *(" / ".join(f"{one.part:.3f}" for one in fleet) for _, fleet in by_fleet)]


def faults(found: Sequence[Found]) -> list[str]:
    """Say of each cell what is not as it is to be."""
    return [f"{one.cell}: {fault}" for one in found for fault in one.faults]


def told() -> Iterator[tuple[str, str]]:
    """Yield how long clients really wait over what they were told: a quota, and its figures."""
    for quota in POLLED:
        ratios = [simulated(quota, n, wanders=wanders).ratio for n, wanders in product(_FLEETS, (False, True))]
        yield quota, " / ".join(f"{ratio:.3f}" for ratio in ratios)
        if max(abs(ratio - 1.0) for ratio in ratios) > AMISS:
            raise SystemExit(f"clients of {quota} do not wait as long as they are told")


def document(found: Sequence[Found], missed: Sequence[str]) -> str:
    """Return all of it as Markdown."""
    head = ["quota", "calls", *(f"{n} instance{'s' * (n > 1)}" for n in INSTANCES)]
    least = min(found, key=lambda one: one.part)
    jain = min((one for one in found if one.cell.arrivals == "random"), key=lambda one: one.jain - one.plain_jain)
    return "\n".join(
        (
            table(head, lines(found)),
            f"Least: {least.part:.3f} ({least.cell}). Excess: {max(one.excess for one in found):.2f} tokens.",
            f"Jain's index over instances: the least of ours beside the plain bucket's is {jain.jain:.3f} and "
            f"{jain.plain_jain:.3f} ({jain.cell}).",
            f"\nNot as it is to be, of {len(found)} cells: {len(missed)}\n",
            *(f"- {each}" for each in missed),
            "\nHow long a client waits that comes again when it was told to, over what it was told: "
            "1 / 4 / 8 instances, each staying, then wandering.\n",
            table(["quota", "real / told"], told()),
        )
    )


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four quotas")
    parser.add_argument("--real", action="store_true", help="a few cells on a real server")
    parser.add_argument("--url", default="embedded://", help="of that server")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="runs at a time")
    chosen = parser.parse_args()
    if chosen.real:
        from benchmarks.small_limits.real import main as real

        return real(chosen.url)
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        quotas = QUICK if chosen.quick else tuple(product(RATES, BURSTS))
        found = list(pool.map(measured, cells(quotas), chunksize=3))
    missed = faults(found)
    text = document(found, missed)
    print(text)
    if not chosen.quick:
        _write(text, found)
    return int(bool(missed))


def _write(text: str, found: Sequence[Found]) -> None:
    from benchmarks.small_limits.drawing import draw

    intro = "# Small limits beside one plain bucket\n\nWritten by `python -m benchmarks.everyday`, which says how.\n\n"
    (_RESULTS / "everyday.md").write_text(intro + text, encoding="utf-8")
    draw(_RESULTS / "everyday.svg", found)


if __name__ == "__main__":
    sys.exit(main())
