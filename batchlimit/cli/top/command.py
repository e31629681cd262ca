"""`batchlimit top`: a live screen, or one sample, whose rates are those between two looks, where nobody watches.

Of buckets; or with `--metrics` of concurrency limiters, as the metrics pages of their processes tell of them.
"""

import sys
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple
from urllib.request import Request, urlopen

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url
from batchlimit.cli.output import AWAY, NOTHING_DONE, Row, cell, end, opened, say, show
from batchlimit.cli.top import board as boards
from batchlimit.cli.top.sampler import BUDGET, Cost, Sampler
from batchlimit.cli.top.screen import FRAME, ScreenScene, Sort, View, drawn, live, table_of

Pages = Annotated[
    list[str] | None,
    typer.Option("--metrics", "-m", help="A metrics page of processes: show their concurrency limiters. Repeat it."),
]
_PATIENCE = 5.0
_MOST = 16_000_000
"""Bytes of a page."""
_GREATEST = {"ratio", "baseline_seconds"}
"""Metrics of which the greatest counts; of all others the sum of all processes."""
_ENDED = "succeeded", "dropped", "ignored", "admitted"
"""Results of calls; a shared limiter counts those that it admitted alone."""
_SHOWN = "limiter", "policy", "limit", "in_flight", "waiting", "ended_per_second", "refused_per_second", "ratio"
_WATCHED = 200
"""So many of the hottest keys are read at every look, whatever SCAN finds."""


class LimiterLook(NamedTuple):
    """One look at all pages."""

    at: float  # when (s)
    # the values of each limiter and policy, by the name of the metric and its other labels
    limiters: dict[tuple[str, str], dict[tuple[str, ...], float]]


def look(urls: Sequence[str]) -> LimiterLook:
    """Read all pages; end the command if one does not answer, or is none."""
    found: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for url in urls:
        for name, labels, value in _samples(url):
            limiter = labels.pop("limiter", ""), labels.pop("policy", "")
            at, values = (name, *(labels[each] for each in sorted(labels))), found[limiter]
            before = values.get(at, 0.0)
            values[at] = max(before, value) if name in _GREATEST else before + value
    return LimiterLook(time.monotonic(), found)


def _samples(url: str) -> Sequence[tuple[str, dict[str, str], float]]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ModuleNotFoundError:
        end(ValueError("--metrics needs prometheus-client: pip install 'batchlimit[cli,prometheus]'"))
    if not url.startswith(("http://", "https://")):
        end(ValueError(f"a metrics page is an http or https URL, not {url!r}"))
    try:
        with urlopen(Request(url, headers={"Accept": "text/plain"}), timeout=_PATIENCE) as answer:
            text = answer.read(_MOST).decode(errors="replace")
        each = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except OSError as error:
        end(OSError(f"{url} does not answer: {getattr(error, 'reason', error)}"), AWAY)
    except ValueError:
        end(ValueError(f"{url} is no page of metrics"))
    prefix = "batchlimit_concurrency_"
    return [(one.name.removeprefix(prefix), dict(one.labels), one.value) for one in each if one.name.startswith(prefix)]


def rows(before: LimiterLook, now: LimiterLook) -> list[Row]:
    """Return a row for each limiter and policy; rates are those between the two looks."""
    seconds, found = max(1e-9, now.at - before.at), list[Row]()
    for (limiter, policy), values in sorted(now.limiters.items()):
        last = before.limiters.get((limiter, policy), {})
        rates = defaultdict[str, float](float)
        by: dict[str, dict[str, int]] = {"lowered": {}, "raised": {}}
        for (name, *labels), value in sorted(values.items(), key=lambda each: -each[1]):
            if name == "requests_total":  # a process that began anew counts from 0
                rates["ended" if labels[1] in _ENDED else labels[1]] += max(0.0, value - last.get((name, *labels), 0.0))
            elif name == "limit_changes_total":
                by.setdefault(labels[0], {})[labels[1]] = round(value)
        limit, ratio = values.get(("settled_limit",)), values.get(("ratio",))
        found.append({
            "limiter": limiter,
            "policy": policy,
            "limit": None if limit is None else round(limit),
            "in_flight": round(values.get(("in_flight",), 0.0)),
            "waiting": round(values.get(("queued_requests",), 0.0)),
            "ended_per_second": round(rates["ended"] / seconds, 1),
            "refused_per_second": round(rates["refused"] / seconds, 1),
            "ratio": None if ratio is None else round(ratio, 2),
            "lowered_by": by["lowered"],
            "raised_by": by["raised"],
            "baselines": {each[1]: round(one, 6) for each, one in values.items() if each[0] == "baseline_seconds"},
        })  # fmt: skip
    return found


def _plain(row: Row) -> Row:
    return {name: row[name] for name in _SHOWN} | {"lowered_by": _told(row["lowered_by"])}


def _told(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name or '-'} {count}" for name, count in counts.items())


def show_limiters(urls: Sequence[str], interval: float, output: Output, *, once: bool) -> None:
    """Show all limiters: live at a terminal, else one sample of two looks."""
    if output is Output.TABLE and not once and sys.stdin.isatty() and sys.stdout.isatty():
        looks = deque[LimiterLook](maxlen=2)
        live(lambda: looks.append(look(urls)), lambda _, _console: _drawn(looks[0], looks[-1]), interval)
        return
    found = _two_looks(urls, interval)
    told = [_plain(row) for row in found] if output is Output.TABLE else {"limiters": found}
    show(told, output, empty="no concurrency limiters on these pages")


def show_limiter(name: str, urls: Sequence[str], interval: float, output: Output) -> None:
    """Show one limiter, with each of its policies."""
    found = _two_looks(urls, interval)
    chosen = [row for row in found if row["limiter"] == name]
    if not chosen:
        names = ", ".join(sorted({repr(row["limiter"]) for row in found})) or "none"
        end(ValueError(f"no concurrency limiter is exported as {name!r}; there are: {names}"), NOTHING_DONE)
    if output is not Output.TABLE:
        show(chosen, output)
        return
    for row in chosen:
        told = {each: _told(row[each]) for each in ("lowered_by", "raised_by", "baselines")}
        show(_plain(row) | told, output)


def _two_looks(urls: Sequence[str], interval: float) -> list[Row]:
    before = look(urls)
    time.sleep(interval)
    return rows(before, look(urls))


def _drawn(before: LimiterLook, now: LimiterLook) -> RenderableType:
    headings = [each.upper().replace("_PER_SECOND", "/S").replace("_", " ") for each in (*_SHOWN, "lowered_by")]
    table = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for row in rows(before, now):
        table.add_row(*map(cell, _plain(row).values()))
    return Group(Text("batchlimit top: concurrency limiters\n", "bold"), table, Text("\nq quit", "dim"))


def top(
    url: Url = "",
    metrics: Pages = None,
    interval: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds between two looks.")] = 1.0,
    budget: Annotated[float, typer.Option(min=0.5, max=500.0, help="Milliseconds of a server for each look.")] = BUDGET,
    sort: Annotated[Sort, typer.Option(help="By what rows are sorted.")] = Sort.USED,
    pattern: Annotated[
        str, typer.Option("--filter", help="Show keys that contain this, or match it with * or ?.")
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Rows of one sample at most.")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Print one sample and end; so does a pipe.")] = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show which keys use and refuse the most, or concurrency limiters: live at a terminal, else one sample."""
    if metrics:
        show_limiters(metrics, interval, output, once=once)
        return
    view, board = View(sort=sort, pattern=pattern), boards.Board()
    with opened(url, prefix) as admin:
        sampler, address = Sampler(admin.store, prefix, budget), admin.store.address

        def look() -> Cost:
            found = sampler.look(board.hottest(_WATCHED))
            board.take(found.samples, found.gone)
            return found.cost

        def draw(cost: Cost, console: Console) -> RenderableType:
            scene = ScreenScene(address, time.time(), budget, cost)
            return drawn(scene, board.rows(), view, console.height - FRAME, console.width)

        if not once and output is Output.TABLE and sys.stdin.isatty() and sys.stdout.isatty():
            live(look, draw, interval, view.press)
            return
        before = look()
        time.sleep(interval)
        cost = look()
        chosen = view.chosen(board.rows())[:count]
    if output is not Output.TABLE:
        show({"store": address, "looked": cost._asdict(), "keys": list(map(_sampled, chosen))}, output)
        return
    if chosen and sys.stdout.isatty():
        console = Console(highlight=False)
        console.print(table_of(chosen, view, console.width))
    else:
        empty = "no buckets: nobody asks, or the prefix or the filter is another one"
        show(list(map(_sampled, chosen)), output, empty=empty)
    calls, ms = before.calls + cost.calls, before.ms + cost.ms
    say(f"both looks cost {calls:,} commands, {ms:.1f} ms of the server; {cost.part:.0%} of all names were seen")


def _sampled(row: boards.Row) -> dict[str, Any]:
    rates = {"used": row.used, "refused": row.refused, "shadow_refused": row.shadow}
    found = {"key": row.key, "quota": row.quota} | {f"{name}_per_second": round(rates[name], 1) for name in rates}
    return found | {"level": round(row.level, 3), "held": row.held, "instances": row.instances}
