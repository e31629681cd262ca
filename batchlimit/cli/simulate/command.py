"""`batchlimit simulate`: what proposed rules would have done to the requests of an access log."""

import gc
import gzip
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from batchlimit.cli.output import Output, say, show
from batchlimit.cli.simulate.log import Bad, lines
from batchlimit.cli.simulate.replay import Replay, Spread
from batchlimit.cli.simulate.result import Result, draw, of_keys, of_rules, whole
from batchlimit.cli.store import Form, end
from batchlimit.rules.file import RuleFile, rules_of

_YOUNG = 100_000
"""Objects that are made between two collections of garbage: a replay makes many that stay."""


def simulate(
    rules: Annotated[str, typer.Argument(help="Rules in TOML or YAML, as for batchlimit.rules.")],
    log: Annotated[
        str, typer.Argument(help="The access log: common, combined or JSON lines; .gz; - is standard input.")
    ],
    instances: Annotated[int, typer.Option("--instances", "-i", min=1, max=1000, help="Limiter instances.")] = 4,
    by: Annotated[
        Spread, typer.Option(help="Which instance gets a request: any, or one for each client.")
    ] = Spread.RANDOM,
    round_trip: Annotated[float, typer.Option(min=0.0, max=10.0, help="Of the store, in seconds.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Of the choice of instances.")] = 1,
    exact: Annotated[
        bool, typer.Option("--exact", help="Have reservoirs decide each request; about ten times slower.")
    ] = False,
    keys: Annotated[int, typer.Option(min=0, help="Keys to show, of those that were refused most.")] = 10,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw a picture: FILE.svg or FILE.png.")] = None,
    output: Form = Output.TABLE,
) -> None:
    """Replay an access log through rules: what is admitted and refused, by rule and key, and the store's calls."""
    try:
        loaded, bad = rules_of(RuleFile(rules)), Bad()
        replay = Replay(loaded, instances, by, round_trip=round_trip, seed=seed, is_exact=exact)
        result, speed = _timed(replay, log, bad)
        if plot is not None:
            draw(result, plot)
        if not result.requests:
            raise ValueError(f"no line of the log is a request; the first that is not: {bad.first or 'it is empty'}")
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        end(error)
    told = whole(result, bad.count, instances, speed)
    rows, worst = of_rules(loaded, result), of_keys(result, keys)
    if output is not Output.TABLE:
        show(told | {"rules": rows, "keys": worst}, output)
        return
    show(told, output)
    show(rows, output)
    if keys:
        show(worst, output, empty="no key was refused")
    if bad.count:
        say(f"{bad.count} lines are no requests; the first: {bad.first}")


def _timed(replay: Replay, log: str, bad: Bad) -> tuple[Result, float]:
    """Replay, and return how many requests each second of this process took."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    begun = time.process_time()
    try:
        with _opened(log) as source:
            result = replay.run(lines(source, bad))
    finally:
        gc.set_threshold(*before)
    return result, result.requests / max(1e-9, time.process_time() - begun)


@contextmanager
def _opened(log: str) -> Iterator[Iterator[str]]:
    if log == "-":
        yield sys.stdin
    elif log.endswith(".gz"):
        with gzip.open(log, "rt", encoding="utf-8", errors="replace") as packed:
            yield packed
    else:
        with open(log, encoding="utf-8", errors="replace") as plain:
            yield plain
