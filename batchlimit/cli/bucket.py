"""The commands that look into one bucket, fill it, or end its pause."""

from typing import Annotated

import typer

from batchlimit.admin import Admin, BucketState
from batchlimit.cli import watching
from batchlimit.cli.output import (
    DEFAULT_PREFIX,
    NOTHING_DONE,
    Form,
    Output,
    Prefix,
    Row,
    Url,
    Who,
    Why,
    Yes,
    confirm,
    lost,
    opened,
    say,
    show,
)
from batchlimit.cli.top.pages import Pages, show_limiter
from batchlimit.cli.watching import BucketLook, level_of
from batchlimit.quota.key import stored

Key = Annotated[str, typer.Argument(help="What is limited; with --metrics, the name of a concurrency limiter.")]


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
            watching.watch(lambda: look_at(admin, key), _whole, interval, output)
            return
        found = look_at(admin, key)
        if output is not Output.TABLE:
            show(_whole(found), output)
        elif found.state is None:
            show(_row(found) | {"bucket": "none: it is full, or was never used"}, output)
        else:
            show(_row(found) | _summary(found.state), output)
            show(_instances(found.state), output, empty="no instance holds tokens")


def look_at(admin: Admin, key: str) -> BucketLook:
    """Return what the bucket of a key holds, which override counts for it, and which trial beside it."""
    state, now, overrides = admin.buckets.get(key), admin.clock(), admin.overrides()
    gone = lost(admin.store, overrides)
    counting = gone or overrides
    found = counting.find(stored(key), now), counting.trial(stored(key), now)
    said = "; ".join(f"{each}, which the store has lost" if gone else str(each) for each in found if each)
    return BucketLook(key, now, state, said or None)


def _row(look: BucketLook) -> Row:
    return {"key": look.key, "override": look.override}


def _whole(look: BucketLook) -> Row:
    if look.state is None:
        return _row(look) | {"has_bucket": False}
    return _row(look) | {"has_bucket": True} | _summary(look.state) | {"instances": _instances(look.state)}


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


def resume(key: Key, url: Url, prefix: Prefix = DEFAULT_PREFIX) -> None:
    """End the pause of a key that a process has asked for."""
    with opened(url, prefix) as admin:
        was_paused = admin.buckets.resume(key)
    say(f"resumed: {key}" if was_paused else f"not paused: {key}")
    if not was_paused:
        raise typer.Exit(NOTHING_DONE)


def _say(key: str, done: str, before: tuple[float, ...] | None) -> None:
    had = "there was none: it is full" if before is None else f"it had {'; '.join(f'{each:.1f}' for each in before)}"
    say(f"{done}: {key}; {had}")


def _summary(state: BucketState) -> Row:
    return {
        "quota": str(state.quota),
        "level": round(level_of(state), 3),
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
    }


def _instances(state: BucketState) -> list[Row]:
    return [
        {
            "instance": each.instance,
            "held": each.held,
            "lease_seconds": round(each.lease, 3),
            "asked_seconds_ago": round(each.asked, 3),
            "weight": each.weight,
        }
        for each in state.instances
    ]
