"""The commands that look into one bucket, or fill it."""

from typing import Annotated

import typer

from batchlimit.admin import Admin, BucketState
from batchlimit.cli.output import Output, Row, say, show
from batchlimit.cli.store import DEFAULT_PREFIX, Form, Prefix, Url, Who, Why, Yes, opened
from batchlimit.quota.key import stored

Key = Annotated[str, typer.Argument(help="What is limited.")]


def get(
    key: Key,
    url: Url,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Show what the bucket of a key holds, who leases from it, and which quota it obeys."""
    with opened(url, prefix) as admin:
        state = admin.bucket(key)
        summary = {"key": key, "override": _override(admin, key)}
        if state is None:
            show(summary | {"bucket": "none: it is full, or was never used"}, output)
        elif output is Output.TABLE:
            show(summary | _summary(state), output)
            show(_instances(state), output, empty="no instance holds tokens")
        else:
            show(summary | _summary(state) | {"instances": _instances(state)}, output)


def refill(
    key: Key, url: Url, why: Why = "", who: Who = None, yes: Yes = False, prefix: Prefix = DEFAULT_PREFIX
) -> None:
    """Fill the bucket of a key, but for what limiters have leased of it. Asks first."""
    with opened(url, prefix, who) as admin:
        _ask(f"Fill the bucket of {key!r}?", yes)
        _say(key, "refilled", admin.refill(key, why=why))


def clear(
    key: Key, url: Url, why: Why = "", who: Who = None, yes: Yes = False, prefix: Prefix = DEFAULT_PREFIX
) -> None:
    """Have the bucket of a key as if it was never used, but for what limiters have leased of it. Asks first."""
    with opened(url, prefix, who) as admin:
        _ask(f"Clear the bucket of {key!r}?", yes)
        _say(key, "cleared", admin.clear(key, why=why))


def _ask(question: str, yes: bool) -> None:
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _say(key: str, done: str, before: tuple[float, ...] | None) -> None:
    had = "there was none: it is full" if before is None else f"it had {'; '.join(f'{each:.1f}' for each in before)}"
    say(f"{done}: {key}; {had}")


def _override(admin: Admin, key: str) -> str | None:
    found = admin.overrides().find(stored(key), admin.clock())
    return None if found is None else str(found)


def _summary(state: BucketState) -> Row:
    return {
        "quota": str(state.quota),
        "level": "; ".join(f"{level:.1f}" for level in state.levels),
        "outstanding": state.outstanding,
        "rules": state.rules,
        "revision": state.revision,
        "age": f"{state.age:.0f} s",
    }


def _instances(state: BucketState) -> list[Row]:
    return [
        {
            "instance": each.instance,
            "held": each.held,
            "lease": f"{each.lease:.3f} s",
            "asked": f"{each.asked:.3f} s ago",
            "weight": each.weight,
        }
        for each in state.instances
    ]
