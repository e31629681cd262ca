"""Draws the screens of `batchlimit top` and `get --watch` for docs/how-to, from limiters at work on a real Valkey.

scripts/pictures [--seconds 25]
"""

import argparse
import io
import random
import re
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console, RenderableType

from batchlimit import RateLimiter
from batchlimit.admin import Admin
from batchlimit.cli.bucket import drawn as get_screen
from batchlimit.cli.bucket import look_at, rates
from batchlimit.cli.top.board import Board
from batchlimit.cli.top.sampler import BUDGET, Sampler
from batchlimit.cli.top.screen import ScreenScene, Sort, View
from batchlimit.cli.top.screen import drawn as top_screen
from batchlimit.stores import RedisStore
from batchlimit.stores.embedded import EmbeddedServer

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "how-to"
_QUOTAS = {
    "search:*": "500/s burst 1000",
    "export:*": "5/s",
    "model:tpm": "100_000/minute",
    "login:*": "5/minute",
    "*": "200/s burst 400",
}
_DEMAND = {"search:ann": 900, "search:bob": 400, "search:cyd": 60, "export:ann": 12, "model:tpm": 1300}
_DEMAND |= {"login:203.0.113.9": 4} | {f"tenant:{n}": 240 // n for n in range(1, 9)}
_INSTANCES, _TICK, _ADDRESS, _ROWS = 3, 0.02, "redis://localhost:6379/0", 14


def call(limiter: RateLimiter, over: threading.Event, seed: int) -> None:
    """Call as the demand says, in waves of half a minute."""
    chance, began = random.Random(seed), time.monotonic()
    while not over.wait(_TICK):
        wave = 1.0 + 0.5 * ((time.monotonic() - began) % 20.0 < 8.0)
        for key, rate in _DEMAND.items():
            expected = rate / _INSTANCES * _TICK * wave
            for _ in range(int(expected) + (chance.random() < expected % 1)):
                limiter.try_acquire(key)


def export(name: str, screen: RenderableType, title: str, width: int) -> None:
    """Write a screen as SVG, with the fonts that the reader has."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(screen)
    picture = console.export_svg(title=title, unique_id=name)
    path = _DOCS / f"{name}.svg"
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), encoding="utf-8")
    print(path)


def main() -> None:
    """Run limiters, look each second, and draw what was seen last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0)
    seconds, over = parser.parse_args().seconds, threading.Event()
    with ExitStack() as stack:
        url = stack.enter_context(closing(EmbeddedServer())).url
        admin = stack.enter_context(Admin.from_url(url))
        admin.set("tenant:1", "100/s burst 200", until="1h", why="its import runs")
        admin.set("model:*", "500/s", mode="shadow", why="would that be enough?")
        limiters = [stack.enter_context(RateLimiter.from_url(url, _QUOTAS, deadline=1.0)) for _ in range(_INSTANCES)]
        callers = [threading.Thread(target=call, args=(each, over, n)) for n, each in enumerate(limiters)]
        for each in callers:
            each.start()
        try:
            look(admin, url, seconds)
        finally:
            over.set()
            for each in callers:
                each.join()


def look(admin: Admin, url: str, seconds: float) -> None:
    """Look each second, and draw."""
    board, of_one = Board(), Board()
    with closing(RedisStore.from_url(url, deadline=1.0)) as store:
        sampler, until = Sampler(store, "batchlimit"), time.monotonic() + seconds
        while True:
            seen = sampler.look(board.hottest(200))
            board.take(seen.samples, seen.gone)
            found = look_at(admin, "tenant:1")
            told = rates(of_one, found)
            if time.monotonic() > until:
                break
            time.sleep(1.0)
    scene = ScreenScene(_ADDRESS, time.time(), BUDGET, seen.cost)
    view, width = View(sort=Sort.REFUSED), 112
    export("top", top_screen(scene, board.rows(), view, _ROWS, width), "batchlimit top --sort refused", width)
    export("get", get_screen(found, told), "batchlimit get tenant:1 --watch", 80)


if __name__ == "__main__":
    main()
