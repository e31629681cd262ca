"""`scripts/demo`: processes share one quota, and an audit shows whether they kept it."""

import secrets
import sys
from enum import StrEnum
from typing import Annotated, Never

import redis
import typer
from rich.console import Console

from batchlimit import Quota, StoreUnavailable
from batchlimit.base.redaction import escaped
from batchlimit.cli.options import Form, Output
from batchlimit.cli.output import Row, show
from benchmarks.audited_fleet.fleet import FleetError, unwatched
from benchmarks.audited_fleet.plan import Api, Plan, burst, steady
from benchmarks.audited_fleet.report import Report
from benchmarks.audited_fleet.trial import trial
from benchmarks.demo.screen import heading, verdict, watching

BROKEN, MISUSED, UNAVAILABLE, INTERRUPTED = 1, 2, 3, 130
"""Exit statuses: the promise was broken, wrong options, no store or a lost process, Ctrl-C."""


class Pattern(StrEnum):
    """How demand is spread over the time."""

    STEADY = "steady"
    BURST = "burst"


def demo(
    processes: Annotated[int, typer.Option(min=1, max=256, help="Processes, each with a limiter of its own.")] = 4,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads, or tasks, in each process.")] = 8,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, help="Length of the run in seconds.")] = 10.0,
    url: Annotated[
        str, typer.Option(help="The store, e.g. redis://localhost; embedded:// starts one.")
    ] = "embedded://",
    quota: Annotated[str, typer.Option(help="The quota of all processes together.")] = "5000/s burst 1000",
    demand: Annotated[float, typer.Option(min=0.001, max=1e6, help="Demand, as a multiple of the quota's rate.")] = 2.0,
    cost: Annotated[int, typer.Option(min=1, help="Tokens for each call.")] = 1,
    pattern: Annotated[
        Pattern, typer.Option(help="steady: even demand. burst: half the time at 0.1 of the rate, then at DEMAND.")
    ] = Pattern.STEADY,
    api: Annotated[Api, typer.Option(help="Call from threads, or from tasks of an event loop.")] = Api.THREADS,
    key: Annotated[str, typer.Option(help="The key of all calls (default: a new one).")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Form = Output.TABLE,
) -> None:
    """Run processes that share one quota, and audit every admission.

    Exit status: 0 the quota was kept, 1 it was broken, 2 wrong options, 3 the store or a process failed, 130
    interrupted.
    """
    try:
        limit = _checked(quota, cost)
    except ValueError as error:
        _fail(error, MISUSED)
    if url.startswith("memory://") and processes > 1:
        _say(f"warning: memory:// is one bucket per process, so {processes} processes have {processes} buckets")
    phases = {Pattern.STEADY: steady, Pattern.BURST: burst}[pattern](limit, demand, seconds, cost)
    plan = Plan(url, quota, key or f"demo-{secrets.token_hex(4)}", processes, threads, phases, (cost,), api=api)
    try:
        form = Output.JSON if as_json else output
        report = _run(plan) if form is Output.TABLE else _run_quietly(plan, form)
    except (ValueError, ImportError) as error:
        _fail(f"{_address(url)}: {error}", MISUSED)
    except (redis.RedisError, StoreUnavailable, FleetError) as error:
        _fail(f"{_address(url)}: {error}", UNAVAILABLE)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    raise typer.Exit(0 if report.promise_kept else BROKEN)


def _checked(text: str, cost: int) -> Quota:
    quota = Quota.parse(text)
    if quota.denies_all:
        raise ValueError(f"quota {text!r} admits nothing, so there is nothing to show")
    if cost > quota.largest_cost:
        raise ValueError(f"a cost of {cost} never fits a burst of {quota.largest_cost}")
    return quota


def _run(plan: Plan) -> Report:
    console = Console(highlight=False)
    console.print(heading(plan, _address(plan.url)), soft_wrap=True, markup=False)
    with watching(console, plan) as watch:
        report = trial(plan, watch)
    for finding in verdict(report):
        console.print(finding, soft_wrap=True)
    return report


def _run_quietly(plan: Plan, form: Output) -> Report:
    report = trial(plan, unwatched)
    show({"plan": _row(plan), "report": report.as_json()}, form)
    return report


def _row(plan: Plan) -> Row:
    return {
        "url": _address(plan.url),
        "quota": plan.quota,
        "key": plan.key,
        "processes": plan.processes,
        "threads": plan.threads,
        "api": str(plan.api),
        "cost": plan.costs[0],
        "phases": [{"seconds": each.seconds, "calls_per_second": each.rate} for each in plan.phases],
    }


def _address(url: str) -> str:
    """Return the URL without the parts that may hold a password: before an @, and the query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _say(message: object) -> None:
    print(f"demo: {escaped(str(message))}", file=sys.stderr)


def _fail(message: object, status: int) -> Never:
    _say(message)
    raise typer.Exit(status)


def main() -> None:
    """Run the demo that the arguments ask for."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    app(prog_name="scripts/demo")


if __name__ == "__main__":
    main()
