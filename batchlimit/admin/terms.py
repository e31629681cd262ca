"""What an operator may say of an override, the override that it makes, and how it is written beside other operators."""

import getpass
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

from batchlimit.base.redaction import shown
from batchlimit.errors import RulesChanged
from batchlimit.quota.failure_policy import FailurePolicy, Kind
from batchlimit.quota.overrides.override import Mode, Override, check_name
from batchlimit.quota.overrides.overrides import Change, Overrides
from batchlimit.quota.overrides.plan import Until, end_of, setting
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import RuleStore

T = TypeVar("T")


class Terms(TypedDict, total=False):
    """Keyword arguments of `Admin.set` and `Admin.plan`.

    Attributes:
        mode: "enforce" (default). "shadow" without a quota: the quotas that count decide, their refusals are counted,
            and everything is admitted. "shadow" with a quota: a trial beside what counts; it is only counted what it
            would refuse, as each process estimates. "open": see `Admin.open`.
        weight: where tokens are short, each instance gets by this weight at these keys (default None: as before).
        on_failure: "closed", "open", "local" or a FailurePolicy while the store is away (default None: as the code
            says). Set it before the store is away: then no limiter can read it.
        until: how long it counts: seconds, a text such as "1h" or "1h30m", or a timedelta; or until when: a datetime
            with its zone, or a text such as "2026-11-28T09:00Z". It ends by itself, by the server's clock (default
            None: it counts until it is removed).
        why: the reason, for the log and for others (one line, default "").
    """

    mode: Mode
    weight: int | None
    on_failure: FailurePolicy | Kind | None
    until: Until
    why: str


def override_of(name: str, quota: Quota | str | None, terms: Terms, who: str, now: float) -> Override:
    """Return the override that says this, from now on (seconds since 1970). Raises ValueError, TypeError."""
    policy, until = terms.get("on_failure"), end_of(terms.get("until"), now)
    policy = FailurePolicy.parse(policy) if isinstance(policy, str) else policy
    wanted = Quota.parse(quota) if isinstance(quota, str) else quota
    mode, weight, why = terms.get("mode", "enforce"), terms.get("weight"), terms.get("why", "")
    return Override(check_name(name), wanted, until, round(now, 3), why, who, mode, weight, policy)


Wish = Quota | str | Mapping[str, Any]
"""What `Admin.apply` is to set: a quota or its text, or a mapping with `quota` and the fields of Terms."""


def wished(wanted: Mapping[str, Wish], why: str, who: str, now: float) -> list[Override]:
    """Return the overrides that these wishes make. Raises ValueError, TypeError."""
    if not isinstance(wanted, Mapping):
        raise TypeError(f"overrides come as a mapping by name, not as {shown(wanted)}")
    found = []
    for name, wish in wanted.items():
        said: Any = {"why": why, **(wish if isinstance(wish, Mapping) else {"quota": wish})}
        quota = said.pop("quota", None)
        try:
            if unknown := said.keys() - Terms.__annotations__.keys():
                known = ", ".join(("quota", *Terms.__annotations__))
                raise ValueError(f"an override has no field {shown(min(unknown))}: there are {known}")
            found.append(override_of(name, quota, said, who, now))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{shown(name)}: {error}") from error
    return found


def someone() -> str:
    """Return who the log says it was, where nobody says it: user@machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of this number
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


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

        def change(overrides: Overrides, now: float) -> tuple[Change, Override]:
            wish = override(now)
            there = overrides.by_name.get(wish.name)
            made = wish.covering(there)
            if not shortens and there is not None and there.is_hold and there.outlasts(made):
                return Change(overrides.revision, {}, who), there
            return setting(overrides, made, who, now), made

        return self.make(change)

    def make(self, plan: Callable[[Overrides, float], tuple[Change, T]]) -> T:
        """Make a change, planned by what stands there now; return what comes of it. If that was changed, plan anew."""
        overrides, now = self.look()
        for _ in range(_TRIES):
            change, result = plan(overrides, now)
            if not change.texts:
                return result
            made, revision = self.rules.change(change)
            if made:
                self._seen = overrides.changed(revision, change.texts)
                return result
            before = overrides
            overrides, now = self.look()
            for name in change.texts:  # somebody else may have changed what was to be changed
                found = overrides.by_name.get(name)
                if found != before.by_name.get(name) and (found is not None or change.texts[name]):
                    who = f"it is {found} by {found.who or 'somebody'} now" if found else "it was removed"
                    raise RulesChanged(
                        f"the override of {name!r} was changed at the same moment: {who}; yours is not set"
                    )
        raise RulesChanged(f"others changed overrides {_TRIES} times at the same moment; nothing was changed")
