"""The commands of `batchlimit`."""

import gzip
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from batchlimit import __version__
from batchlimit.cli import apply, bucket, rules
from batchlimit.cli.doctor import doctor
from batchlimit.cli.exporter import exporter
from batchlimit.cli.migrate import migrate
from batchlimit.cli.options import Form, Output
from batchlimit.cli.output import end, say, show
from batchlimit.cli.simulate.log import Bad, lines
from batchlimit.cli.simulate.replay import Replay, Spread
from batchlimit.cli.simulate.result import draw, of_keys, of_rules, whole
from batchlimit.cli.top.command import top
from batchlimit.rules.file import RuleFile, rules_of


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
        bool, typer.Option("--exact", help="Have limiters decide all requests; up to ten times slower.")
    ] = False,
    keys: Annotated[int, typer.Option(min=0, help="Keys to show, of those that were refused most.")] = 10,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw a picture: FILE.svg or FILE.png.")] = None,
    output: Form = Output.TABLE,
) -> None:
    """Replay an access log through rules: what is admitted and refused, by rule and key, and the store's calls."""
    try:
        loaded, bad, begun = rules_of(RuleFile(rules)), Bad(), time.process_time()
        replay = Replay(loaded, instances, by, round_trip=round_trip, seed=seed, is_exact=exact)
        opening: Any = gzip.open if log.endswith(".gz") else open
        with nullcontext(sys.stdin) if log == "-" else opening(log, "rt", encoding="utf-8", errors="replace") as source:
            result = replay.run(lines(source, bad))
        if not result.requests:
            raise ValueError(f"no line of the log is a request; the first that is not: {bad.first or 'it is empty'}")
        speed = result.requests / max(1e-9, time.process_time() - begun)
        if plot is not None:
            draw(result, plot)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        end(ValueError(f"{log} cannot be unpacked: {error}"))
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        end(error)
    if bad.late:
        say(f"lines that are more than a minute older than one before them: {bad.late}; sort the log by time")
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
        say(f"lines that are no requests: {bad.count}; the first: {bad.first}")


_COMMANDS: tuple[Callable[..., None], ...] = (
    rules.set_, rules.hold, rules.open_, rules.unset, bucket.get, top, bucket.refill, bucket.clear, bucket.resume,
    doctor, exporter, simulate, rules.log, apply.check, apply.diff, migrate,
)  # fmt: skip
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for each in _COMMANDS:
    app.command(each.__name__.rstrip("_"))(each)
_rules = typer.Typer(invoke_without_command=True)
_rules.callback()(rules.rules)
_rules.command()(apply.apply)
app.add_typer(_rules, name="rules")


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"batchlimit {__version__}")
        raise typer.Exit


@app.callback()
def batchlimit(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A rate limiter for many processes: each leases tokens from one shared bucket in batches."""
