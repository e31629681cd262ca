"""The commands that look into one bucket, once or again and again, fill it, or end its pause."""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batchlimit.admin import Admin, BucketState
from batchlimit.base.key import check_key, stored
from batchlimit.base.redaction import escaped
from batchlimit.bucket.state import read_bucket
from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url, Who, Why, Yes
from batchlimit.cli.output import NOTHING_DONE, Row, confirm, json_of, lost, opened, say, show, yaml_of
from batchlimit.cli.top import board as boards
from batchlimit.cli.top.command import Pages, show_limiter
from batchlimit.cli.top.screen import bar, live, number, sparkline, style_of
from batchlimit.quota.overrides.override import is_pattern

Key = Annotated[str, typer.Argument(help="What is limited.")]


def get(
    key: Key,
    url: Url = "",
    metrics: Pages = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again; q or Ctrl-C ends it.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=60.0, help="Seconds between two looks.")] = 1.0,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show what the bucket of a key holds, who leases from it, and its quota; or one concurrency limiter."""
    if metrics:
        show_limiter(key, metrics, interval, output)
        return
    with opened(url, prefix) as admin:
        if watch:
            _watch(partial(look_at, admin, key), interval, output)
            return
        row = _row(look_at(admin, key))
        if output is not Output.TABLE:
            show(row, output)
        elif not row.pop("has_bucket"):
            why = (
                "full, or never used: a pattern is no key, and `top` filters by patterns"
                if is_pattern(key)
                else "it is full, or was never used"
            )
            show(row | {"bucket": f"none: {why}"}, output)
        else:
            instances = row.pop("instances")
            show(row, output)
            show(instances, output, empty="no instance holds tokens")


class BucketLook(NamedTuple):
    """One look at a bucket."""

    key: str  # whose bucket it is
    at: float  # when (seconds since 1970)
    state: BucketState | None  # the bucket; None: there is none
    override: str | None  # the override that counts, and a trial beside it; None: the code counts
    sample: boards.BucketSample | None = None  # the same for a board

    @property
    def clock(self) -> str:
        """When, as people read it."""
        return datetime.fromtimestamp(self.at, UTC).strftime("%H:%M:%S")


def look_at(admin: Admin, key: str) -> BucketLook:
    """Return what the bucket of a key holds, which override counts for it, and which trial beside it."""
    name = stored(check_key(key))
    fields, now = admin.store.rules.bucket(name)
    state, overrides = read_bucket(fields, now) if fields else None, admin.overrides()
    gone = lost(admin.store, overrides)
    counting = gone or overrides
    found = counting.find(name, now), counting.trial(name, now)
    said = "; ".join(f"{each}, which the store has lost" if gone else str(each) for each in found if each)
    return BucketLook(key, now, state, said or None, boards.sampled(key, fields, now))


def _row(look: BucketLook) -> Row:
    row, state = {"key": look.key, "override": look.override, "has_bucket": look.state is not None}, look.state
    if state is None:
        return row
    return row | {
        "quota": str(state.quota),
        "level": round(boards.level_of(state), 3),
        "tokens": [round(level, 1) for level in state.levels],
        "held": state.outstanding,
        "used": state.used,
        "refused": state.refused,
        "shadow_refused": state.shadow_refused,
        "rules": state.rules,
        "revision": state.revision,
        "age_seconds": round(state.age),
        "paused_seconds": round(state.paused, 3),
        "paused_why": state.why,
        "instances": [
            {
                "instance": each.instance,
                "held": each.held,
                "lease_seconds": round(each.lease, 3),
                "asked_seconds_ago": round(each.asked, 3),
                "weight": each.weight,
            }
            for each in state.instances
        ],
    }


def refill(
    key: Key, url: Url, why: Why = "", who: Who = None, yes: Yes = False, prefix: Prefix = DEFAULT_PREFIX
) -> None:
    """Fill the bucket of a key, but for what limiters have leased of it. Asks first."""
    with opened(url, prefix, who) as admin:
        confirm(f"Fill the bucket of {key!r}?", yes)
        _say(key, "refilled", admin.buckets.refill(key, why=why))


def clear(
    key: Key, url: Url, why: Why = "", who: Who = None, yes: Yes = False, prefix: Prefix = DEFAULT_PREFIX
) -> None:
    """Have the bucket of a key as if it was never used, but for what limiters have leased of it. Asks first."""
    with opened(url, prefix, who) as admin:
        confirm(f"Clear the bucket of {key!r}?", yes)
        _say(key, "cleared", admin.buckets.clear(key, why=why))


def _say(key: str, done: str, before: tuple[float, ...] | None) -> None:
    had = "there was none: it is full" if before is None else f"it had {'; '.join(f'{each:.1f}' for each in before)}"
    say(f"{done}: {key}; {had}")


def resume(key: Key, url: Url, prefix: Prefix = DEFAULT_PREFIX) -> None:
    """End the pause of a key that a process has asked for."""
    with opened(url, prefix) as admin:
        was_paused = admin.buckets.resume(key)
    say(f"resumed: {key}" if was_paused else f"not paused: {key}")
    if not was_paused:
        raise typer.Exit(NOTHING_DONE)


_WIDTH = 11
"""Characters of a column in a line."""
_NEVER_USED = boards.Row("", "", 0.0, 0.0, 0.0, 1.0, 0, 0, (), is_average=True)


def rates(board: boards.Board, look: BucketLook) -> boards.Row:
    """Return what happened each second since the last look, by the board of one bucket."""
    board.take([look.sample] if look.sample else [], [] if look.sample else [look.key])
    return next(iter(board.rows()), _NEVER_USED)


def _watch(look: Callable[[], BucketLook], interval: float, output: Output) -> None:
    """Look until somebody leaves: a screen at a terminal, else a line or a document for each look."""
    board = boards.Board()

    def look_again() -> tuple[BucketLook, boards.Row]:
        found = look()
        return found, rates(board, found)

    if output is Output.TABLE and sys.stdin.isatty() and sys.stdout.isatty():
        live(look_again, lambda seen, _console: drawn(*seen), interval)
        return
    try:
        if output is Output.TABLE:
            print(_spaced("AT", "LEVEL", "HELD", "USED/S", "REFUSED/S", "SHADOW/S", "INSTANCES"), flush=True)
        while True:
            print(_told(*look_again(), output), flush=True)
            time.sleep(interval)
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(look: BucketLook, rate: boards.Row, output: Output) -> str:
    if output is Output.TABLE:
        state, each = look.state, (number(rate.used), number(rate.refused), number(rate.shadow))
        if state is None:
            return _spaced(look.clock, "1.000", "0", *each, "0")
        return _spaced(
            look.clock, f"{boards.level_of(state):.3f}", f"{state.outstanding}", *each, f"{len(state.instances)}"
        )
    row = {"at": look.clock} | _row(look) | {"used_per_second": round(rate.used, 1)}
    row["refused_per_second"], row["shadow_refused_per_second"] = round(rate.refused, 1), round(rate.shadow, 1)
    return json_of(row) if output is Output.JSON else "---\n" + yaml_of(row).rstrip()


def _spaced(*words: str) -> str:
    return "  ".join(word.ljust(_WIDTH) for word in words).rstrip()


def drawn(look: BucketLook, rate: boards.Row) -> RenderableType:
    """Return a screen: the levels as bars, the rates, and who holds tokens."""
    head = Text.assemble(("batchlimit get", "bold"), f"  {escaped(look.key)}  {look.clock} UTC")
    foot, state = Text("\nq quit", "dim"), look.state
    if state is None:
        return Group(head, Text("\nno bucket: it is full, or was never used"), foot)
    table = Table("INSTANCE", box=None, pad_edge=False, header_style="bold")
    for name in ("HELD", "LEASE", "ASKED", "WEIGHT"):
        table.add_column(name, justify="right")
    for each in state.instances:
        times = f"{each.lease:.2f} s", f"{each.asked:.2f} s ago"
        table.add_row(Text(escaped(each.instance)), f"{each.held:,}", *times, str(each.weight))
    by = f"the override of {escaped(look.override)}" if look.override else f"the code, revision {state.revision}"
    facts = [("quota", Text(str(state.quota))), ("by", Text(by))]
    for band, level in zip(state.quota.bandwidths, state.levels, strict=True):
        share = max(0.0, level / band.burst)
        told = Text.assemble((bar(share, 30), style_of(share)), f" {level:,.1f} of {band.burst:,}")
        facts.append(("level", told))
    facts += [
        ("held", Text(f"{state.outstanding:,} by {len(state.instances)} instances")),
        ("used", Text.assemble(f"{number(rate.used)}/s  ", (sparkline(rate.trend), "cyan"))),
        ("refused", Text(f"{number(rate.refused)}/s", "red" if rate.refused else "")),
    ]
    if rate.shadow:
        facts.append(("in shadow", Text(f"{number(rate.shadow)}/s were to be refused", "yellow")))
    shown = Table(box=None, show_header=False, pad_edge=False)
    for name, fact in facts:
        shown.add_row(name, fact)
    return Group(head, Text(""), shown, Text(""), table, foot)
