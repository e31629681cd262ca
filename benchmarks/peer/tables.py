"""The results as tables."""

import math
from collections.abc import Callable, Iterable

from benchmarks.figures import Figure
from benchmarks.markdown import percent, table
from benchmarks.peer.awaited import CROWDED
from benchmarks.peer.book import Book
from benchmarks.peer.contender import FLOOR
from benchmarks.peer.targets import best_peer
from benchmarks.peer.threaded import CONTENDERS

Show = Callable[[float], str]


def count(value: float) -> str:
    """Three digits, which is more than such figures are good for."""
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, min(digits, 4))}f}"


def share(value: float) -> str:
    return percent(value, 1)


_COLUMNS: dict[str, list[tuple[str, str, Show]]] = {
    "latency": [
        ("calls/s given", "given", count),
        ("p50", "p50", count),
        ("p99", "p99", count),
        ("p99.9", "p99.9", count),
        ("excess", "excess", count),
        ("the harness woke late, p50", "late p50", count),
        ("p99.9", "late p99.9", count),
    ],
    "cost": [
        ("decisions/s", "rate", count),
        ("requests/decision", "requests/decision", count),
        ("commands/decision", "commands/decision", count),
        ("server CPU, us/decision", "processor", count),
        ("excess", "excess", count),
        ("used", "used", share),
    ],
    "overload": [
        ("decisions/s", "rate", count),
        ("refused/s", "refused", count),
        ("requests/s", "requests/s", count),
        ("excess", "excess", count),
        ("used", "used", share),
    ],
}


def speeds(book: Book, part: str) -> str:
    """Decisions/s of every contender in every setting, and how many times the best peer's that is."""
    settings = book.settings(part)
    rows = []
    for who in book.names(part):
        excess = max(book.worst(part, setting, who, "excess") for setting in settings)
        admitted = min(book.least(part, setting, who, "admitted") for setting in settings)
        cells = [_speed(book, part, setting, who) for setting in settings]
        seen = any(_is_audited(book, part, setting) for setting in settings)
        rows.append([who, *cells, count(excess) if seen and who != FLOOR else "-", share(admitted)])
    return table(["decisions/s", *settings, "excess", "admitted at least"], rows)


def _speed(book: Book, part: str, setting: str, who: str) -> str:
    rate = count(book.median(part, setting, who, "rate"))
    peer = best_peer(book, part, setting)
    return f"{rate} ({count(book.ratio(part, setting, who, peer, 'rate'))}x)" if peer else rate


def columns(book: Book, part: str, setting: str) -> str:
    """The measures of one setting: a line for each contender."""
    shown = _COLUMNS[part]
    rows = [[who, *(_cell(book, part, setting, who, *each) for each in shown)] for who in book.names(part)]
    return table([setting, *(head for head, _, _ in shown)], rows)


def _cell(book: Book, part: str, setting: str, who: str, _: str, measure: str, show: Show) -> str:
    if who == FLOOR and measure in ("excess", "used"):
        return "-"  # which limits nothing
    if measure == "excess" and not _is_audited(book, part, setting):
        return "-"
    figure = book.worst if measure == "excess" else book.median
    return show(figure(part, setting, who, measure))


def _is_audited(book: Book, part: str, setting: str) -> bool:
    """Whether excess can be seen there: what limits nothing has some. So it has not where all calls are allowed."""
    return book.worst(part, setting, FLOOR, "excess") > 0


def rules(book: Book) -> str:
    """Whose version was measured, and what each promises: for a rate, and a burst that is as large."""
    known = [(CONTENDERS | CROWDED)[who] for who in dict.fromkeys(each.who for each in book.rounds)]
    return table(
        ["", "version", "promises"], [[each.name, each.version or "", each.rule] for each in known if each.rule]
    )


def verdicts(figures: Iterable[Figure]) -> str:
    """Every figure beside its target."""
    return table(["", "measured", "target", "", ""], [_verdict(each) for each in figures])


def _verdict(figure: Figure) -> list[str]:
    value = f"{count(figure.value)} {figure.unit}".rstrip()
    return [figure.name, value, figure.target, figure.verdict, figure.note]
