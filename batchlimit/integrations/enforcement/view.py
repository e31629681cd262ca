"""What a view may ask of its request: what each rule has decided, and what it has left."""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from batchlimit import Decision
from batchlimit.integrations.enforcement.outcome import Outcome
from batchlimit.integrations.enforcement.plan import Bill, Left
from batchlimit.rules import Rule

Seen = tuple[Bill, Left, Mapping[str, Decision] | None]
"""What was charged, what is left of it by key, and what the store has decided by rule."""
SHOWN = "batchlimit.decisions"
"""Where a carrier has what is Seen; or, while its routes may ask for more, an object with the `outcome`."""
HOLD_NAME = "_batchlimit"
"""Where the requests of some frameworks have an object with the `outcome`, in place of a carrier."""
_NOWHERE = (
    "no rules were held against this request: it has not passed through a middleware of batchlimit, or its response has"
    " ended"
)


def show(carrier: MutableMapping[Any, Any], outcome: Outcome) -> None:
    """Let a view see what the rules say of its request; again, after its route has asked for a rule."""
    carrier[SHOWN] = outcome.bill, outcome.left, outcome.decided


def decisions(request: Any) -> dict[str, Decision]:
    """Return what each rule has decided of a request, for the view that answers it.

    A rule that refuses is not among them: its request reaches no view. A rule with `mode="shadow"` refuses nobody, and
    says here whether it would: its decision is not `allowed`, and its `source` is "shadow".

    Args:
        request: the request as the framework passes it to views: of Starlette, FastAPI, Litestar, Quart, aiohttp,
            Flask, Django or REST framework; a websocket of them; a scope of ASGI; or an environ of WSGI.

    Returns:
        A Decision by the name of its rule, for each rule that the request was charged to, and each in shadow mode that
        did not admit it. No rule is there that does not apply, or whose store is away and which is open then.

    Raises:
        LookupError: the request has not passed through a middleware of batchlimit.

    Example:
        >>> from batchlimit.integrations.wsgi import RateLimitMiddleware, decisions
        >>> from batchlimit.rules import Rule
        >>> def app(environ, start_response):
        ...     start_response("200 OK", [])
        ...     return [b"%d left" % decisions(environ)["all"].remaining]
        >>> limited = RateLimitMiddleware(app, "memory://", [Rule("all", "3/hour", key="all:{ip}")])
        >>> environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.1"}
        >>> limited(environ, lambda status, fields: None)
        [b'2 left']
    """
    bill, left, decided = _seen(request)
    return {rule.name: _from_memory(rule, left, key) for rule, key, _ in bill.charged} | dict(decided or {})


def in_shadow(decision: Decision, rule: Rule, cost: int) -> Decision:
    """Return what a rule says of a request that its shadow mode has admitted."""
    again = decision.retry_after
    if decision.allowed:
        quota = decision.quota or rule.quota
        rate = quota.bandwidths[decision.binding or 0].rate
        again = (cost - min(decision.remaining, cost)) / rate if rate else float("inf")
    return replace(decision, allowed=False, retry_after=again, source="shadow")


def _from_memory(rule: Rule, left: Left, key: str) -> Decision:
    remaining, known, binding = left[key]
    quota = known or rule.quota
    largest = quota.largest_cost
    return Decision(True, largest, remaining, 0.0, quota.full_after(remaining, binding), "local", quota, binding)


def _seen_of(hold: Any) -> Seen:
    return hold.outcome.bill, hold.outcome.left, hold.outcome.decided


def _seen(request: Any) -> Seen:
    if (hold := getattr(request, HOLD_NAME, None)) is not None:
        return _seen_of(hold)
    for carrier in (getattr(request, "scope", None), getattr(request, "environ", None), request):
        if isinstance(carrier, Mapping) and (found := carrier.get(SHOWN)) is not None:
            seen: Seen = found if found.__class__ is tuple else _seen_of(found)
            return seen
    raise LookupError(_NOWHERE)
