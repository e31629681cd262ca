"""A change of overrides, made by what stands in the store, though other operators change them as well."""

from collections.abc import Callable

from batchlimit.errors import RulesChanged
from batchlimit.quota.overrides.log import Change
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.overrides.plan import setting
from batchlimit.stores.protocols import RuleStore

_TRIES = 10
"""How often a change is made anew after other operators changed something else."""


class Ledger:
    """The overrides as they were seen last, which are not read again while nobody changes them."""

    def __init__(self, rules: RuleStore) -> None:
        self.rules, self._seen = rules, Overrides()

    def look(self) -> tuple[Overrides, float]:
        """Return what stands in the store, and the server's clock."""
        published = self.rules.read(self._seen.revision or -1)
        if published.fields is not None:
            self._seen = Overrides.read(published.fields) if published.fields else Overrides()
        return self._seen, published.now

    def put(self, override: Callable[[float], Override], who: str, *, shortens: bool = True) -> Override:
        """Set an override, and return the one that counts: without `shortens` that may be a hold that ends later."""
        made: list[Override] = []

        def change(overrides: Overrides, now: float) -> Change:
            made[:] = [override(now)]
            there = overrides.by_name.get(made[0].name)
            if not shortens and there is not None and there.is_hold and there.outlasts(made[0]):
                made[:] = [there]
                return Change(overrides.revision, {}, who)
            return setting(overrides, made[0], who, now)

        self.make(change)
        return made[0]

    def make(self, plan: Callable[[Overrides, float], Change]) -> Overrides:
        """Make a change, by what stands there now, and return that; make it anew if something else was changed."""
        overrides, now = self.look()
        for _ in range(_TRIES):
            change = plan(overrides, now)
            if not change.texts or self._made(overrides, change):
                return overrides
            before = overrides
            overrides, now = self.look()
            _check_same(before, overrides, change)
        raise RulesChanged(f"others changed overrides {_TRIES} times at the same moment; nothing was changed")

    def _made(self, overrides: Overrides, change: Change) -> bool:
        made, revision = self.rules.change(change)
        if made:
            self._seen = overrides.changed(revision, change.texts)
        return made


def _check_same(before: Overrides, now: Overrides, change: Change) -> None:
    """Raise RulesChanged if somebody else changed what was to be changed."""
    for name in change.texts:
        found = now.by_name.get(name)
        if found != before.by_name.get(name) and (found is not None or change.texts[name]):
            who = f"it is {found} by {found.who or 'somebody'} now" if found else "it was removed"
            raise RulesChanged(f"the override of {name!r} was changed at the same moment: {who}; yours is not set")
