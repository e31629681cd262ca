"""What both APIs make of their arguments."""

from collections.abc import Iterable, Mapping

from batchlimit.events import named, tell
from batchlimit.quota.key import check_costs
from batchlimit.redaction import shown

Rate = str | Mapping[str, int] | Iterable[tuple[str, int]]
"""A key, which is charged `cost`; or whole tokens by key."""


def checked_pair(rates: object, concurrency: object, rate_kind: type, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless these are a rate limiter and a concurrency limiter of the same API."""
    if not isinstance(rates, rate_kind):
        raise TypeError(f"rates must be of {rate_kind.__name__}, not {shown(rates)}")
    check_kind("concurrency", concurrency, kinds)


def check_kind(name: str, limiter: object, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless an argument is one of these limiters, which are of one API."""
    if not isinstance(limiter, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be one of {names}, not {shown(limiter)}")


def costs_of(rate: Rate, cost: int) -> dict[str, int]:
    """Return whole tokens by key."""
    return check_costs({rate: cost} if isinstance(rate, str) else rate)


def not_refunded(key: str, tokens: int, error: Exception) -> None:
    """Tell the log of tokens that could not be given back: the caller has an answer already."""
    message = "%d tokens of %s were not refunded: %s"
    tell("tokens.not_refunded", message, tokens, named(key), error, key=key, tokens=tokens, reason=str(error))
