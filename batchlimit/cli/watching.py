"""A bucket that is looked at again and again: a screen at a terminal, a line for each look in a pipe."""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from batchlimit.admin import BucketState
from batchlimit.base.redaction import escaped
from batchlimit.cli.output import Output, Row, json_of, yaml_of
from batchlimit.cli.top.board import Board, BucketSample
from batchlimit.cli.top.screen import Keyboard, bar, keyboard, number, sparkline, style_of

_APART = 1.0
"""Seconds by which a bucket that began anew is later; within this they are two looks at one."""
_WIDTH = 11
"""Characters of a column in a line."""


class BucketLook(NamedTuple):
    """One look at a bucket."""

    key: str  # whose bucket it is
    at: float  # when (seconds since 1970)
    state: BucketState | None  # the bucket; None: there is none
    override: str | None  # the override that counts, and a trial beside it; None: the code counts


class Rate(NamedTuple):
    """Tokens each second."""

    used: float  # that were used
    refused: float  # that were refused
    shadow: float  # that were admitted, and that a quota in shadow mode or on trial was to refuse
    trend: tuple[float, ...]  # what was used at the last looks


class Rates:
    """The tokens that were used and refused each second, by the looks so far."""

    def __init__(self) -> None:
        self._board, self._began = Board(), 0.0

    def take(self, look: BucketLook) -> Rate:
        """Return what happened each second since the last look."""
        if (state := look.state) is None:
            self._board = Board()
            return Rate(0.0, 0.0, 0.0, ())
        spent, began = max(0, state.used - state.outstanding), look.at - state.age
        if abs(began - self._began) > _APART:
            self._began = began
        counts = spent, state.refused, state.shadow_refused
        self._board.take([BucketSample(look.key, look.at, state.quota, 0.0, 0, 0, self._began, *counts)])
        (row,) = self._board.rows()
        return Rate(row.used, row.refused, row.shadow, row.trend)


def watch(look: Callable[[], BucketLook], row_of: Callable[[BucketLook], Row], interval: float, output: Output) -> None:
    """Look until somebody leaves: a screen at a terminal, else a line or a document for each look."""
    if output is Output.TABLE and sys.stdin.isatty() and sys.stdout.isatty():
        _screen(look, interval)
        return
    try:
        rates = Rates()
        if output is Output.TABLE:
            _print(_spaced("AT", "LEVEL", "HELD", "USED/S", "REFUSED/S", "SHADOW/S", "INSTANCES"))
        while True:
            found = look()
            rate = rates.take(found)
            row = {"at": _clock(found.at)} | row_of(found) | {"used_per_second": round(rate.used, 1)}
            row["refused_per_second"], row["shadow_refused_per_second"] = round(rate.refused, 1), round(rate.shadow, 1)
            match output:
                case Output.JSON:
                    _print(json_of(row))
                case Output.YAML:
                    _print("---\n" + yaml_of(row).rstrip())
                case Output.TABLE:
                    _print(_line(found, rate))
            time.sleep(interval)
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _screen(look: Callable[[], BucketLook], interval: float) -> None:
    rates, console = Rates(), Console(highlight=False)
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found, until = look(), time.monotonic() + interval
            live.update(drawn(found, rates.take(found)), refresh=True)
            if leaves(keys, until):
                return


def leaves(keys: Keyboard, until: float) -> bool:
    """Wait for the next look; return whether somebody pressed q before."""
    while pressed := keys.pressed(until - time.monotonic()):
        if set(pressed) & set("qQ\x03\x04"):
            return True
    return False


def _line(look: BucketLook, rate: Rate) -> str:
    told = number(rate.used), number(rate.refused), number(rate.shadow)
    if (state := look.state) is None:
        return _spaced(_clock(look.at), "1.000", "0", *told, "0")
    counts = str(state.outstanding), *told, str(len(state.instances))
    return _spaced(_clock(look.at), f"{level_of(state):.3f}", *counts)


def level_of(state: BucketState) -> float:
    """Return the least share of a burst that is there, 0 to 1, as everywhere in the command line."""
    shares = (level / band.burst for band, level in zip(state.quota.bandwidths, state.levels, strict=True))
    return max(0.0, min(shares))


def _spaced(*words: str) -> str:
    return "  ".join(word.ljust(_WIDTH) for word in words).rstrip()


def _print(text: str) -> None:
    print(text, flush=True)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def drawn(look: BucketLook, rate: Rate) -> RenderableType:
    """Return a screen: the levels as bars, the rates, and who holds tokens."""
    head = Text.assemble(("batchlimit get", "bold"), f"  {escaped(look.key)}  {_clock(look.at)} UTC")
    foot = Text("\nq quit", "dim")
    if look.state is None:
        return Group(head, Text("\nno bucket: it is full, or was never used"), foot)
    parts = _summary(look, look.state, rate), Text(""), _instances(look.state)
    return Group(head, Text(""), *parts, foot)


def _summary(look: BucketLook, state: BucketState, rate: Rate) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("quota", Text(str(state.quota)))
    by = f"the override of {escaped(look.override)}" if look.override else f"the code, revision {state.revision}"
    table.add_row("by", Text(by))
    for band, level in zip(state.quota.bandwidths, state.levels, strict=True):
        share = max(0.0, level / band.burst)
        told = Text.assemble((bar(share, 30), style_of(share)), f" {level:,.1f} of {band.burst:,}")
        table.add_row("level", told)
    table.add_row("held", Text(f"{state.outstanding:,} by {len(state.instances)} instances"))
    table.add_row("used", Text.assemble(f"{number(rate.used)}/s  ", (sparkline(rate.trend), "cyan")))
    table.add_row("refused", Text(f"{number(rate.refused)}/s", "red" if rate.refused else ""))
    if rate.shadow:
        table.add_row("in shadow", Text(f"{number(rate.shadow)}/s were to be refused", "yellow"))
    return table


def _instances(state: BucketState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("INSTANCE")
    for name in ("HELD", "LEASE", "ASKED", "WEIGHT"):
        table.add_column(name, justify="right")
    for each in state.instances:
        times = f"{each.lease:.2f} s", f"{each.asked:.2f} s ago"
        table.add_row(Text(escaped(each.instance)), f"{each.held:,}", *times, str(each.weight))
    return table
