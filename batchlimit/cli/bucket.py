"""The command that looks into one bucket."""

from typing import Annotated

import typer

from batchlimit.admin import Admin, BucketState
from batchlimit.cli.output import Output, Row, show
from batchlimit.cli.store import DEFAULT_PREFIX, Form, Prefix, Url, opened
from batchlimit.quota.key import stored


def get(
    key: Annotated[str, typer.Argument(help="What is limited.")],
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
