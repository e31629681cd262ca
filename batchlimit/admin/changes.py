"""A change of overrides, made by what stands in the store, though other operators change them as well."""

from collections.abc import Callable

from batchlimit.errors import RulesChanged
from batchlimit.overrides.log import Change
from batchlimit.overrides.override import Override
from batchlimit.overrides.overrides import Overrides
from batchlimit.overrides.plan import setting
from batchlimit.stores.protocols import RuleStore

_TRIES = 10
"""How often a change is made anew after other operators changed something else."""


def seen(rules: RuleStore) -> tuple[Overrides, float]:
    """Return what stands in the store, and the server's clock."""
    published = rules.read(-1)
    fields = published.fields
    return Overrides.read(fields) if fields else Overrides(), published.now


def put(rules: RuleStore, override: Callable[[float], Override], who: str) -> Override:
    """Set the override that is made at the server's clock (seconds since 1970), and return it."""
    made: list[Override] = []

    def change(overrides: Overrides, now: float) -> Change:
        made[:] = [override(now)]
        return setting(overrides, made[0], who, now)

    make(rules, change)
    return made[0]


def make(rules: RuleStore, plan: Callable[[Overrides, float], Change]) -> Change:
    """Make a change, by what stands there now; make it anew if meanwhile something else was changed."""
    overrides, now = seen(rules)
    for _ in range(_TRIES):
        change = plan(overrides, now)
        if not change.texts or rules.change(change)[0]:
            return change
        before = overrides
        overrides, now = seen(rules)
        _check_same(before, overrides, change)
    raise RulesChanged(f"others changed overrides {_TRIES} times at the same moment; nothing was changed")


def _check_same(before: Overrides, now: Overrides, change: Change) -> None:
    """Raise RulesChanged if somebody else changed what was to be changed."""
    for name in change.texts:
        found = now.by_name.get(name)
        if found != before.by_name.get(name) and (found is not None or change.texts[name]):
            who = f"it is {found} by {found.who or 'somebody'} now" if found else "it was removed"
            raise RulesChanged(f"the override of {name!r} was changed at the same moment: {who}; yours is not set")
