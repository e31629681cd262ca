"""benchmarks/results/peers.md: everything, beside its target."""

from collections.abc import Iterable

from benchmarks.figures import Figure
from benchmarks.peer.book import Book
from benchmarks.peer.brief import brief, losses
from benchmarks.peer.tables import columns, rules, speeds, verdicts

_SPEEDS = {
    "speed": ("Decisions", "All are allowed. In brackets: how many times what the best peer did in the same round."),
    "pinned": (
        "Decisions, clients on one core",
        "Every client process is kept on the same processor: its threads do not pass the interpreter's lock from one\n"
        "to another, which makes whoever waits for a server faster.",
    ),
    "tasks": ("Decisions on an event loop", "aiolimiter knows one process only and is there for orientation."),
    "far": (
        "Decisions, the server 1 ms away",
        "Through a relay on this machine that holds up each piece for half a millisecond. It passes on some 15,000\n"
        "requests a second at the most: who asks for every decision cannot do more there, with however many threads.",
    ),
    "far tasks": ("Decisions on an event loop, the server 1 ms away", "By the same relay."),
    "single": (
        "A token at a time",
        "Where nothing can be leased ahead: each decision asks, like a plain token bucket in Lua. At 5/s and one key\n"
        "nearly all are refused.",
    ),
}
_TABLES = {
    "latency": (
        "How long a call takes",
        "In us, from when it was due, of 8 threads that together call as often as is said; who could not bear 4,000/s\n"
        "was given half of what it can do at most.",
    ),
    "cost": (
        "What a decision costs the server",
        "8 threads ask for 0.9 of what the limit allows. Commands are those of scripts too; processor time is without\n"
        "what the server takes when nobody calls. The burst, as much as is refilled within a second, is a part of\n"
        "what may be used, and nobody asks for it here.",
    ),
    "overload": (
        "More than the limit allows",
        "8 threads, as fast as they can at a limit of 100/s; and at 10,000/s calls for ten times that fall due, which\n"
        "who asks for each of them cannot make. Then both with the server 1 ms away. The excess is over\n"
        "burst + rate x t in any window, burst = rate.",
    ),
}


def page(book: Book, figures: Iterable[Figure], ran: str) -> str:
    """Return the whole document."""
    parts = [
        "# batchlimit and its peers\n\n",
        "Written by `scripts/bench peers`; [what is measured, and how](../../docs/performance/method.md).\n\n",
        f"{ran}.\n\n{brief(book)}\n## Where others do better\n\n{losses(book)}\n",
        f"## Who they are\n\n{rules(book)}\n## Targets\n\n{verdicts(figures)}\n",
        *(
            f"## {title}\n\n{text}\n\n{speeds(book, part)}\n"
            for part, (title, text) in _SPEEDS.items()
            if book.names(part)
        ),
        *(_all_columns(book, part) for part in _TABLES if book.names(part)),
        "![Decisions by threads](peers-speed.svg)\n\n![The time a call takes](peers-latency.svg)\n\n",
        "![What a decision costs the server](peers-processor.svg)\n",
    ]
    return "".join(parts)


def _all_columns(book: Book, part: str) -> str:
    title, text = _TABLES[part]
    tables = "\n".join(columns(book, part, setting) for setting in book.settings(part))
    return f"## {title}\n\n{text}\n\n{tables}\n"
