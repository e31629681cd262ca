"""The few lines that tell most: the table of docs/performance, and where somebody else does better than ours."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from benchmarks.markdown import table
from benchmarks.peer.book import Book
from benchmarks.peer.contender import BATCHED, BOUND, FLOOR, OURS
from benchmarks.peer.parts import COST, DRY, DRY_FAR, FAR, NEAR, PEERS, TENFOLD, TENFOLD_FAR
from benchmarks.peer.tables import Show, count, share
from benchmarks.peer.targets import best_peer, ours
from benchmarks.peer.threaded import TOGETHER


@dataclass(frozen=True, slots=True)
class Line:
    """One measure in one setting."""

    label: str
    part: str
    setting: str
    measure: str
    show: Show = count
    target: str = ""
    least: bool = False
    """Whether less is better."""


_LINES = (
    Line("decisions/s, 1 thread", "speed", "1 thread", "rate", target=">= 300x"),
    Line("8 threads", "speed", "8 threads", "rate", target=">= 300x"),
    Line("64 threads", "speed", "64 threads", "rate", target=">= 300x"),
    Line("4 x 8 threads", "speed", "4 x 8 threads", "rate", target=">= 300x"),
    Line("8 threads on one core", "pinned", "8 threads", "rate", target=">= 150x"),
    Line("64 tasks", "tasks", "64 tasks", "rate", target=">= 130x"),
    Line("1,000 tasks", "tasks", "1,000 tasks", "rate"),
    Line("8 threads, the server 1 ms away", "far", "8 threads", "rate"),
    Line("64 tasks, the server 1 ms away", "far tasks", "64 tasks", "rate"),
    Line("p99 of a call, us", "latency", NEAR, "p99", target="<= 5 us", least=True),
    Line("p99.9", "latency", NEAR, "p99.9", target="<= 50 us", least=True),
    Line("p99, the server 1 ms away", "latency", FAR, "p99", target="<= 5 us", least=True),
    Line("p99.9", "latency", FAR, "p99.9", target="<= 50 us", least=True),
    Line("server CPU, us a decision", "cost", COST, "processor", target="<= 0.01x", least=True),
    Line("requests a decision", "cost", COST, "requests/decision", least=True),
    Line("refused/s at 100/s, 8 threads", "overload", DRY, "refused", target=">= 5,000,000/s"),
    Line("used of the allowance there", "overload", DRY, "used", share),
    Line("excess there, tokens", "overload", DRY, "excess", target="0", least=True),
    Line("refused/s there, the server 1 ms away", "overload", DRY_FAR, "refused", target=">= 5,000,000/s"),
    Line("used at 10x of 10,000/s", "overload", TENFOLD, "used", share),
    Line("excess there, tokens", "overload", TENFOLD, "excess", target="0", least=True),
    Line("requests/s there", "overload", TENFOLD, "requests/s", least=True),
    Line("used there, the server 1 ms away", "overload", TENFOLD_FAR, "used", share),
    Line("excess there, tokens", "overload", TENFOLD_FAR, "excess", target="0", least=True),
)
_LEFT_OUT = ("redis-rate-limiters",)
"""The best peer nowhere, and a table has an end."""


def brief(book: Book) -> str:
    """A line for each that was measured; a dash for who was not."""
    lines = [line for line in _LINES if line.setting in book.settings(line.part)]
    named = {who for line in lines for who in book.names(line.part, line.setting)}
    mine = [who for who in (OURS, BOUND, BATCHED) if who in named]
    theirs = [who for who in (*PEERS, "bare INCR") if who in named and who not in _LEFT_OUT]
    heads = [f"**{who}**" for who in mine] + theirs
    rows = [_row(book, line, mine, theirs) for line in lines]
    return table(["", *heads, "ours / best peer", "target"], [*rows, *_single(book, len(heads))])


def _row(book: Book, line: Line, mine: list[str], theirs: list[str]) -> list[str]:
    figure = book.worst if line.measure == "excess" else book.median
    cells = {who: line.show(figure(line.part, line.setting, who, line.measure)) for who in (*mine, *theirs)}
    bold = [f"**{cells[who]}**" for who in mine]
    return [line.label, *bold, *(cells[who] for who in theirs), _times(book, line, mine), line.target]


def _single(book: Book, columns: int) -> Iterator[list[str]]:
    """Where nothing can be leased ahead, at one key: ours, and how many times what it is compared with."""
    mine, theirs = TOGETHER[0]
    for setting in book.settings("single"):
        rate = book.median("single", setting, mine, "rate")
        ratio = book.ratio("single", setting, mine, theirs, "rate")
        label = f"a token at a time, {setting}, of {theirs}"
        yield [label, f"**{count(rate)}**", *["-"] * (columns - 1), f"{count(ratio)}x", ">= 0.9x"]


def _times(book: Book, line: Line, mine: list[str]) -> str:
    peer = best_peer(book, line.part, line.setting, line.measure, least=line.least)
    best = book.best(line.part, line.setting, mine, line.measure, least=line.least)
    if peer is None or best is None or line.measure in ("used", "excess"):
        return ""
    return f"{count(book.ratio(line.part, line.setting, best, peer, line.measure))}x"


def losses(book: Book) -> str:
    """Where somebody else does better than every form of ours."""
    found = [*chain.from_iterable(_loss(book, line) for line in _LINES), *_single_losses(book)]
    return "".join(f"- {each}\n" for each in found) or "Nowhere, of what is in the table above.\n"


def _loss(book: Book, line: Line) -> Iterator[str]:
    names = [who for who in book.names(line.part) if who != FLOOR and not who.startswith(OURS)]
    theirs = book.best(line.part, line.setting, names, line.measure, least=line.least)
    mine = book.best(line.part, line.setting, ours(book, line.part), line.measure, least=line.least)
    if theirs is None or mine is None:
        return
    values = [book.median(line.part, line.setting, who, line.measure) for who in (theirs, mine)]
    if values[0] != values[1] and (values[0] < values[1]) == line.least:
        shown = [line.show(each) for each in values]
        yield f"{line.setting}, {line.measure}: {theirs} {shown[0]}, {mine} {shown[1]}"


def _single_losses(book: Book) -> Iterator[str]:
    for setting in book.settings("single"):
        for mine, theirs in TOGETHER:
            if book.ratio("single", setting, mine, theirs, "rate") < 1:
                rates = [count(book.median("single", setting, who, "rate")) for who in (theirs, mine)]
                yield f"{setting}, a token at a time: {theirs} {rates[0]}, {mine} {rates[1]}"
