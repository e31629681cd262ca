"""What ours is to reach, beside what it did; a target that was missed says so and changes nothing else."""

import math
from collections.abc import Iterator
from itertools import chain, product

from benchmarks.figures import Figure
from benchmarks.peer.book import Book
from benchmarks.peer.contender import FLOOR, OURS
from benchmarks.peer.parts import COST, DRY, DRY_FAR, FAR, PEERS
from benchmarks.peer.threaded import TOGETHER

_TIMES = {"speed": 300.0, "pinned": 150.0}
_TIMES_TASKS = {"64 tasks": 130.0}
_HOW = {"pinned": ", pinned", "far": f", {FAR}", "far tasks": f", {FAR}"}


def figures(book: Book) -> Iterator[Figure]:
    """All that can be said of what was measured; of what was not, nothing."""
    found = chain(_times(book), _latency(book), _cost(book), _dry(book), _single(book))
    yield from (each for each in found if not math.isnan(each.value))
    yield Figure("excess of ours, the worst of all runs", _worst_excess(book), "tokens", at_most=0)


def ours(book: Book, part: str) -> list[str]:
    """The forms of ours that were measured there."""
    return [who for who in book.names(part) if who.startswith(OURS)]


def best_peer(book: Book, part: str, setting: str, measure: str = "rate", *, least: bool = False) -> str | None:
    """The library that does best of those that ask Redis."""
    return book.best(part, setting, PEERS, measure, least=least)


def _times(book: Book) -> Iterator[Figure]:
    for part in ("speed", "pinned", "tasks", "far", "far tasks"):
        for setting in book.settings(part):
            if (peer := best_peer(book, part, setting)) is None:
                continue
            note = f"{peer}: {book.median(part, setting, peer, 'rate'):,.0f}/s"
            target = _TIMES_TASKS.get(setting) if part == "tasks" else _TIMES.get(part)
            for who in ours(book, part):
                ratio = book.ratio(part, setting, who, peer, "rate")
                name = f"{setting}{_HOW.get(part, '')}: {who} / best peer"
                yield Figure(name, ratio, "x", at_least=target, note=note)


def _latency(book: Book) -> Iterator[Figure]:
    for setting in book.settings("latency"):
        for who in ours(book, "latency"):
            for measure, most in (("p99", 5.0), ("p99.9", 50.0)):
                floor = f"an empty call: {book.median('latency', setting, FLOOR, measure):.1f}"
                took = book.median("latency", setting, who, measure)
                yield Figure(f"{setting}: {who}, {measure} from when it was due", took, "us", at_most=most, note=floor)


def _cost(book: Book) -> Iterator[Figure]:
    if (peer := best_peer(book, "cost", COST, "processor", least=True)) is None:
        return
    for who in ours(book, "cost"):
        share = 100 * book.ratio("cost", COST, who, peer, "processor")
        theirs = f"{peer}: {book.median('cost', COST, peer, 'processor'):.1f} us"
        yield Figure(f"{COST}: {who}, server CPU / best peer", share, "%", at_most=1.0, note=theirs)


def _dry(book: Book) -> Iterator[Figure]:
    for setting, who in product((DRY, DRY_FAR), ours(book, "overload")):
        refused, asked = (book.median("overload", setting, who, measure) for measure in ("refused", "requests/s"))
        yield Figure(f"{setting}: {who}, refused", refused, "/s", at_least=5e6)
        yield Figure(f"{setting}: {who}, round trips", asked, "/s", at_most=200.0)


def _single(book: Book) -> Iterator[Figure]:
    for setting in book.settings("single"):
        for mine, theirs in TOGETHER:
            ratio = book.ratio("single", setting, mine, theirs, "rate")
            note = _rates(book, setting, mine, theirs)
            yield Figure(f"{setting}: {mine} / {theirs}", ratio, "x", at_least=0.9, note=note)


def _rates(book: Book, setting: str, *names: str) -> str:
    return " and ".join(f"{book.median('single', setting, who, 'rate'):,.0f}/s" for who in names)


def _worst_excess(book: Book) -> float:
    return max((each.measures.get("excess", 0.0) for each in book.rounds if each.who.startswith(OURS)), default=0.0)
