"""batchlimit beside the other limiters of Python: speed, latency, what it costs the server, and whether it keeps count.

    scripts/bench peers [--quick] [--only PART ...] [--url embedded:// | --compose] [--into DIRECTORY]

All on one machine in one run: in each round every contender has its turn in every setting, figures are medians over the
rounds. A full run takes about 17 minutes and writes benchmarks/results/ and the table in docs/performance/README.md;
a quick run, or a part, only prints, unless `--into` says where to write. Method: docs/performance/method.md.

Exit status 1 if ours broke a promise in any run, 2 if there is no server.
"""

import argparse
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import redis
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.server import Server
from benchmarks.compose import NoDocker, composed
from benchmarks.distance import distant
from benchmarks.markdown import between_marks
from benchmarks.peer.bench import Bench, Part
from benchmarks.peer.brief import brief
from benchmarks.peer.crew import Crew
from benchmarks.peer.drawings import draw
from benchmarks.peer.page import page
from benchmarks.peer.parts import PARTS
from benchmarks.peer.record import as_json, machine
from benchmarks.peer.targets import figures

_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "benchmarks" / "results"
_PROCESSES = 4
_ROUND_TRIP = 0.001


def measure(url: str, parts: Sequence[Part], quick: bool, tell: Callable[[str], None]) -> Bench:
    """Run these parts on the server at `url`; tell what is next."""
    with Crew(_PROCESSES) as crew, distant(url, _ROUND_TRIP) as far:
        bench = Bench(crew, url, far, factor=0.4 if quick else 1.0)
        for part in parts:
            part.carry_out(bench, 1 if quick else part.rounds, tell)
    return bench


def main() -> int:
    """Measure, and write what was found; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, about three minutes")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default="embedded://", help="of a server that nobody else uses meanwhile")
    where.add_argument("--compose", action="store_true", help="start the Redis of docker-compose.yml, use it, stop it")
    parser.add_argument("--into", type=Path, help="write the results here, and leave docs/performance alone")
    chosen = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as a Ctrl-C: a container would outlive us
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    parts = [PARTS[name] for name in chosen.only]
    try:
        with _server(chosen.url, chosen.compose) as url, closing(Server(url)) as server:
            with _telling(sum(part.runs * (1 if chosen.quick else part.rounds) for part in parts)) as tell:
                bench = measure(url, parts, chosen.quick, tell)
            ran = machine(server.name)
    except (NoDocker, redis.RedisError, ValueError) as reason:
        print(f"benchmarks/peers.py: {reason}", file=sys.stderr)
        return 2
    return _report(bench, ran, chosen.into, whole=not chosen.quick and len(parts) == len(PARTS))


def _report(bench: Bench, ran: str, into: Path | None, whole: bool) -> int:
    found = list(figures(bench.book))
    print(ran, *found, sep="\n")
    folder = into or (_RESULTS if whole else None)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "peers.json").write_text(as_json(bench.book, found, ran), encoding="utf-8")
        (folder / "peers.md").write_text(page(bench.book, found, ran), encoding="utf-8")
        draw(bench.book, folder)
    if folder == _RESULTS:
        between_marks(_ROOT / "docs" / "performance" / "README.md", "peers", f"{brief(bench.book)}\n{ran}.\n")
    return int(any(each.name.startswith("excess") and each.verdict == "short" for each in found))


@contextmanager
def _server(url: str, compose: bool) -> Iterator[str]:
    with ExitStack() as stack:
        if compose:
            url = stack.enter_context(composed())
        elif url.startswith("embedded://"):
            url = stack.enter_context(closing(EmbeddedStore())).url
        yield re.sub(r"^valkey", "redis", url)  # the one name that all contenders know


@contextmanager
def _telling(runs: int) -> Iterator[Callable[[str], None]]:
    """Show what is run and how long it will take, if there is somebody to see it."""
    console = Console(stderr=True)
    shown = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*shown, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=runs)
        progress.update(task, completed=-1)
        yield lambda what: progress.update(task, advance=1, description=what)


if __name__ == "__main__":
    sys.exit(main())
