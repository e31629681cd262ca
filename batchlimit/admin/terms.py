"""What an operator may say of an override, and the override that it makes."""

import getpass
import socket
from collections.abc import Mapping
from typing import Any, TypedDict

from batchlimit.base.redaction import shown
from batchlimit.quota.failure_policy import FailurePolicy, Kind
from batchlimit.quota.overrides.key_rule import Mode
from batchlimit.quota.overrides.override import Override, check_name
from batchlimit.quota.overrides.plan import Until, end_of
from batchlimit.quota.quota import Quota


class Terms(TypedDict, total=False):
    """Keyword arguments of `Admin.set` and `Admin.plan`.

    Attributes:
        mode: "enforce" (default). "shadow" without a quota: the quotas that count decide, their refusals are counted,
            and everything is admitted. "shadow" with a quota: a trial beside what counts; it is only counted what it
            would refuse, as each process estimates. "open": see `Admin.open`.
        weight: where tokens are short, each instance gets by this weight at these keys (default None: as before).
        on_failure: "closed", "open", "local" or a FailurePolicy while the store is away (default None: as the code
            says). Set it before the store is away: then no limiter can read it.
        until: how long it counts: seconds, a text such as "1h" or "1h30m", a timedelta, or a datetime with its zone. It
            ends by the server's clock, by itself (default None: it counts until it is removed).
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
    return [_wished(name, wish, why, who, now) for name, wish in wanted.items()]


def _wished(name: str, wish: Wish, why: str, who: str, now: float) -> Override:
    said: Any = {"why": why, **(wish if isinstance(wish, Mapping) else {"quota": wish})}
    quota = said.pop("quota", None)
    if unknown := said.keys() - Terms.__annotations__.keys():
        known = ", ".join(("quota", *Terms.__annotations__))
        raise ValueError(f"an override has no field {shown(min(unknown))}: there are {known}")
    try:
        return override_of(name, quota, said, who, now)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{shown(name)}: {error}") from error


def someone() -> str:
    """Return who the log says it was, where nobody says it: user@machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of this number
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
