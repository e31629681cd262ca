"""The commands that change quotas while processes run, and tell which are set."""

from datetime import timedelta
from typing import Annotated

import typer

from batchlimit.admin import Admin, Plan
from batchlimit.admin.terms import Terms, override_of
from batchlimit.base.key import check_key, stored
from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url, Who, Why, Yes
from batchlimit.cli.output import NOTHING_DONE, REMEDY, Row, confirm, lost, opened, say, show, told
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.overrides.known import ending, spelled
from batchlimit.quota.overrides.override import FOR_ALL, Mode, NotUnderstood, Override
from batchlimit.quota.overrides.overrides import Entry
from batchlimit.quota.overrides.plan import counting

Name = Annotated[str, typer.Argument(help="A key, or a pattern with *, ? or [; '*' is the default for all keys.")]
_MOST_SHOWN = 50
"""Live buckets in a table."""
_SHOWN = "name", "quota", "state", "until", "why", "who", "at"


def set_(
    name: Name,
    url: Url,
    quota: Annotated[
        str | None, typer.Argument(help="Such as 20/s, '5/minute; 100/day', or 0/s to refuse everything.")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Refuse nothing, and count what was to be refused; with a quota: on trial.")
    ] = False,
    weight: Annotated[int | None, typer.Option(help="Of each instance, where tokens are short.")] = None,
    on_failure: Annotated[
        str | None, typer.Option(help="While the store is away: closed, open, local, local:48 (48 instances).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="How long it counts: 90s, 30m, 1h30m, 2d; or until when: 2026-11-28T09:00Z.")
    ] = None,
    why: Why = "",
    who: Who = None,
    yes: Yes = False,
    prefix: Prefix = DEFAULT_PREFIX,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    output: Form = Output.TABLE,
) -> None:
    """Set another quota for a key or a pattern. All processes obey within a lease, at most 1.5 s."""
    with opened(url, prefix, who) as admin:
        policy = None if on_failure is None else FailurePolicy.parse(on_failure)
        mode: Mode = "shadow" if shadow else "enforce"
        terms = Terms(mode=mode, weight=weight, on_failure=policy, until=until, why=why)
        if dry_run:
            _show_plan(admin.plan(name, quota, **terms), admin.clock(), output)
            say(f"would be set; before: {_before(admin, name)}")
        else:
            _put(admin, name, quota, terms, yes, output)


def hold(
    name: Name,
    until: Annotated[
        str, typer.Argument(metavar="UNTIL", help="How long nothing is admitted, as 5m, or until 2026-11-28T09:00Z.")
    ],
    url: Url,
    why: Why = "",
    who: Who = None,
    yes: Yes = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Admit nothing for a key or a pattern, for a time. `unset` or `open` ends it earlier, a shorter hold does not."""
    with opened(url, prefix, who) as admin:
        _put(admin, name, "0/s", Terms(until=until, why=why), yes, output, is_hold=True)


def open_(
    name: Name,
    url: Url,
    until: Annotated[
        str | None, typer.Option(help="How long everything is admitted, as 5m, or until 2026-11-28T09:00Z.")
    ] = None,
    why: Why = "",
    who: Who = None,
    yes: Yes = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Admit everything for a key or a pattern. `unset` ends it earlier."""
    with opened(url, prefix, who) as admin:
        _put(admin, name, None, Terms(mode="open", until=until, why=why), yes, output)


def unset(
    url: Url,
    names: Annotated[list[str] | None, typer.Argument(help="Keys and patterns, as they were set.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all overrides.")] = False,
    yes: Yes = False,
    why: Why = "",
    who: Who = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Remove overrides: what they covered counts again, another override, or the code. Status 1 if none was set."""
    with opened(url, prefix, who) as admin:
        if bool(names) == every:
            raise ValueError("name what to remove, or use --all")
        wanted = [each.name for each in admin.overrides()] if every else names or []
        if every and wanted:
            confirm(f"Remove overrides: {len(wanted)}. Go on?", yes)
        gone = lost(admin.store, admin.overrides())
        removed = admin.unset(*(wanted or ["*"]), why=why)  # of a store that has lost its overrides as well
        left = [each for each in admin.overrides() if each.name in removed]
        if every and left:
            admin.unset(*(each.name for each in left), why=why)  # what they covered
        say(f"removed: {', '.join(removed)}" if removed else "none of these was set")
        if left and not every:
            say(f"counts again: {', '.join(map(str, left))}")
        if gone:
            say(f"ended, which the store had lost: {told(gone)}")
        if not removed and not gone:
            raise typer.Exit(NOTHING_DONE)


def rules(
    context: typer.Context,
    url: Url = "",
    explain: Annotated[str | None, typer.Option(metavar="KEY", help="Which override counts for this key.")] = None,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show the overrides that are set, those first that count before others."""
    if context.invoked_subcommand is not None:
        return
    with opened(url, prefix) as admin:
        now, found = admin.clock(), admin.overrides()
        if gone := lost(admin.store, found):
            say(f"warning: processes obey what the store has lost: {REMEDY}")
        found, lasting = gone or found, "lost" if gone else "counts"
        if explain is None:
            ordered = sorted(found, key=lambda each: (each.is_pattern, each.name))
            rows = [_row(each, now, lasting) for each in ordered]
            show(rows, output, empty="no overrides: the code counts", columns=_SHOWN)
            return
        key = stored(check_key(explain))
        one, trial = found.find(key, now), found.trial(key, now)
        counts = {"key": explain, "counts": "the code" if one is None else "override"}
        row = counts if one is None else counts | _row(one, now, lasting)
        show(row | {"trial": None if trial is None else str(trial)}, output)


def log(
    url: Url,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Changes at most.")] = 20,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show who changed which override, newest first."""
    with opened(url, prefix) as admin:
        rows: list[Row] = [
            {"at": spelled(each.at), "who": each.who, "name": each.name}
            | {"old": _quota(each, each.old), "new": _quota(each, each.new), "why": each.why}
            for each in admin.history(count)
        ]
        show(rows, output, empty="nothing was changed yet")


def _put(
    admin: Admin, name: str, quota: str | None, terms: Terms, yes: bool, output: Output, *, is_hold: bool = False
) -> None:
    """Set an override, and show it; what counts for nearly every key is set after a yes."""
    if override_of(name, quota, terms, "", 0.0).is_for_all:
        confirm(f"{name!r} {FOR_ALL}. Set it?", yes)
    there, before = admin.overrides().by_name.get(name), _before(admin, name)
    made = admin.hold(name, terms["until"], why=terms["why"]) if is_hold else admin.set(name, quota, **terms)
    show(_row(made, admin.clock()), output)
    if made == there:
        say("not set: this hold ends later; unset or open lifts it")
        raise typer.Exit(NOTHING_DONE)
    then = made.covered or "another override that matches, or the code"
    ends = "" if made.until is None else f"; once it has ended: {then}"
    say(f"set; before: {before}{ends}")


def _before(admin: Admin, name: str) -> str:
    overrides, now = admin.overrides(), admin.clock()
    one, there = counting(overrides, name, now), overrides.by_name.get(name)
    return str(one) if one else f"no override; {there} had ended" if there else "no override"


def _row(there: Override, now: float, lasting: str = "counts") -> Row:
    each = there.counting(now) or there
    ended, then = each.has_ended(now), f", then {each.covered.said}" if each.covered else ""
    left = "" if each.until is None or ended else f"{timedelta(seconds=round(each.until - now))} left{then}"
    return {
        "name": each.name,
        "quota": each.said,
        "state": "ended" if ended else lasting if lasting == "lost" else left or lasting,
        "until": None if each.until is None else spelled(each.until),
        "why": each.why,
        "who": each.who,
        "at": spelled(each.at),
    }


def _show_plan(plan: Plan, now: float, output: Output) -> None:
    touches: list[Row] = [{"key": each.key, "before": str(each.before), "after": each.after} for each in plan.touched]
    row = _row(plan.override, now)
    if output is not Output.TABLE:
        show(row | {"touches": touches, "names": plan.names, "warnings": list(plan.warnings)}, output)
    else:
        show(row, output)
        show(touches[:_MOST_SHOWN], output, empty="no live bucket that was looked at changes")
        some = "" if plan.is_whole else f", of those among {plan.names} names"
        say(f"{len(touches)} live buckets would obey it{some}")
    for each in plan.warnings:
        say(f"warning: {each}")


def _quota(entry: Entry, text: str) -> str | None:
    """Return the quota that a text of the log names; the text itself if it cannot be read."""
    if not text:
        return None
    try:
        override = Override.decode(entry.name, text)
    except NotUnderstood:
        return text
    return override.said + ending(override)
