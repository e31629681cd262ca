"""A run for the record: every round as JSON, with the machine and all versions that it belongs to."""

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, ran_on
from benchmarks.peer.awaited import CROWDED
from benchmarks.peer.book import Book
from benchmarks.peer.contender import Contender
from benchmarks.peer.threaded import CONTENDERS

_PROCESSORS = Path("/proc/cpuinfo")


def machine(server: str) -> str:
    """What the figures belong to, in a line."""
    busy = f"load {os.getloadavg()[0]:.1f} at the end"  # ours alone are 2 to 4
    return f"{ran_on()}, {_processor()}, {busy}; {server}; {datetime.now(UTC):%Y-%m-%d}"


def as_json(book: Book, figures: Iterable[Figure], ran: str) -> str:
    """One document for all of it."""
    known: list[Contender[Any]] = [*CROWDED.values(), *CONTENDERS.values()]
    versions = {each.package: each.version for each in known if each.version}
    verdicts = [asdict(each) | {"verdict": each.verdict} for each in figures]
    return json.dumps({"machine": ran, "versions": versions, "figures": verdicts, "rounds": book.rows()}, indent=1)


def _processor() -> str:
    """Its model, where the system tells."""
    if not _PROCESSORS.exists():
        return platform.processor() or platform.machine()
    lines = _PROCESSORS.read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
