"""The answer of the rules to one request: what they learn of its response, and what a view may ask of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from batchlimit import Decision
from batchlimit.integrations.counters import Faults
from batchlimit.integrations.enforcement.plan import NOTHING_CHARGED, Bill, Charged, Left
from batchlimit.integrations.headers import MEDIA_TYPE, Fields, Header, Problem, Told, reduced_capacity
from batchlimit.rules import Request, Rule

NO_STORE = (b"cache-control", b"no-store")
AGAIN = 1.0
"""Retry-After (s) while the store is away."""
SHOWN = "batchlimit.decisions"
"""Where a carrier has what an Outcome has `shown`; while its routes may ask for more, an object with the `outcome`."""
HOLD_NAME = "_batchlimit"
"""Where the requests of some frameworks have an object with the `outcome`, in place of a carrier."""
_NOWHERE = (
    "no rules were held against this request: it has not passed through a middleware of batchlimit, or its response has"
    " ended"
)
_fields, _faults = Fields(), Faults()


@dataclass(frozen=True, slots=True)
class Response:
    """What the `charge` of a rule decides by.

    Attributes:
        status: the HTTP status; 500 if the application raised before it responded, 499 if the client went away before.
        headers: the fields of the response, names in lower case (default none).
        error: what the application raised, or asyncio.CancelledError (default None).
        complete: whether the body was sent to its end (default True).
        sent: bytes of the body that were sent (default 0).

    Example:
        >>> Response(401).status
        401
    """

    status: int
    headers: Sequence[Header] = ()
    error: BaseException | None = None
    complete: bool = True
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request does not reach the application, and what it is answered.

    Attributes:
        status: 429, 403 (nobody can say who asks) or 503 (the store is away).
        rules: the names of the rules that refused.
        key: the key that is short, or whose bucket nobody can reach; None if there is none.
        retry_after: seconds; None if nothing is known, inf for never.
        headers: all fields of the answer but its length.
        body: problem details as JSON.
        error: what went wrong; None for a limit.
    """

    status: int
    rules: tuple[str, ...]
    key: str | None
    retry_after: float | None
    headers: list[Header]
    body: bytes
    error: Exception | None = None

    @property
    def fields(self) -> list[Header]:
        """The fields that belong to every answer, whatever its body."""
        return [each for each in self.headers if each[0] != b"content-type"]

    @property
    def kind(self) -> list[Header]:
        """The field that says what kind of body it is."""
        return [each for each in self.headers if each[0] == b"content-type"]


@dataclass(slots=True)
class Outcome:
    """What the rules say of one request.

    Attributes:
        refusal: why it is refused; None: it is admitted.
        headers: the fields for the application's response. The list is the same one as long as the request lasts.
        charges: what `settle` has to hear the response for; mostly nothing.
        bill: what was charged (default: nothing).
        left: what remains of it, by key: the fields tell of this.
        request: the request (default None: nobody looked at one).
        decided: what was decided by key, where memory alone did not (default None).
        shadows: what those rules in shadow mode say, by name, that would have refused (default None).
        is_unmatched: whether no rule matched, so far.
        is_exempt: whether it is charged to nothing, and to nothing that its route asks for.
    """

    refusal: Refusal | None = None
    headers: list[Header] = field(default_factory=list)
    charges: Sequence[Charged] = ()
    bill: Bill = NOTHING_CHARGED
    left: Left = field(default_factory=dict)
    request: Request | None = None
    decided: Mapping[str, Decision] | None = None
    shadows: Mapping[str, Decision] | None = None
    is_unmatched: bool = False
    is_exempt: bool = False

    @property
    def shown(self) -> tuple[Any, ...]:
        """What `decisions` tells views of, once more after a route has asked; it does not lead to the request."""
        return self.bill, self.left, self.decided, self.shadows

    def add(self, other: "Outcome", fields: Fields) -> Refusal | None:
        """Add what a rule said that a route asked for; the fields tell of each rule once, or of what refused alone."""
        if other.charges:
            self.charges = [*self.charges, *other.charges]
        if other.refusal is not None:
            self.headers[:] = other.refusal.fields
            return other.refusal
        if self.decided:  # of a key that was charged again what is left since then counts
            self.decided = {key: each for key, each in self.decided.items() if key not in other.left}
        if other.decided:
            self.decided = {**(self.decided or {}), **other.decided}
        if other.shadows:
            self.shadows = {**(self.shadows or {}), **other.shadows}
        if not self.bill.keys:
            self.bill, self.left, self.headers[:] = other.bill, other.left, other.headers
        elif other.bill.keys:
            self.bill = Bill.of({each[0].name: each for each in (*self.bill.charged, *other.bill.charged)}.values())
            self.left = {**self.left, **other.left}
            self.headers[:] = self.bill.fields(self.left, fields)
        return None


def refuse(
    fields: Fields,
    problem: Problem,
    retry_after: float | None = None,
    short: Sequence[Told] = (),
    *,
    key: str | None = None,
    error: Exception | None = None,
) -> Refusal:
    """Return an answer that no cache stores."""
    told: list[Header] = fields.refused(short, retry_after)
    headers = [(b"content-type", MEDIA_TYPE), NO_STORE, *told]
    return Refusal(problem.status, problem.policies, key, retry_after, headers, problem.body(), error)


def unprotected(key: str, remedy: str) -> Refusal:
    """Return the 503 of a route that asks for a key where no rules are; the log has the remedy, once a minute."""
    _faults.tell(key, "requests of a route are refused, which asks for %r: %s", key, remedy)
    return refuse(_fields, reduced_capacity(), AGAIN)


def decisions(request: Any) -> dict[str, Decision]:
    """Return what each rule has decided of a request, for the view that answers it.

    A rule that refuses is not among them: its request reaches no view. A rule with `mode="shadow"` refuses nobody, and
    says here whether it would: its decision is not `allowed`, and its `source` is "shadow".

    Args:
        request: the request or websocket as the framework passes it to views (Starlette, FastAPI, Litestar, Quart,
            aiohttp, Flask, Django, REST framework). Or a scope of ASGI, or an environ of WSGI.

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
    seen: Any = getattr(request, HOLD_NAME, None)
    for carrier in (getattr(request, "scope", None), getattr(request, "environ", None), request):
        if seen is None and isinstance(carrier, Mapping):
            seen = carrier.get(SHOWN)
    if seen is None:
        raise LookupError(_NOWHERE)
    if seen.__class__ is not tuple:
        seen = seen.outcome.shown
    bill, left, decided, shadows = seen
    found: dict[str, Decision] = {}
    for rule, key, _ in bill.charged:
        if decided and key in decided:
            found[rule.name] = decided[key]
            continue
        remaining, known, binding = left[key]
        quota = known or rule.quota
        largest, full = quota.largest_cost, quota.full_after(remaining, binding)
        found[rule.name] = Decision(True, largest, remaining, 0.0, full, "local", quota, binding)
    return found | dict(shadows or {})


def in_shadow(decision: Decision, rule: Rule, cost: int) -> Decision:
    """Return what a rule says of a request that its shadow mode has admitted."""
    again = decision.retry_after
    if decision.allowed:
        quota = decision.quota or rule.quota
        rate = quota.bandwidths[decision.binding or 0].rate
        again = (cost - min(decision.remaining, cost)) / rate if rate else float("inf")
    return replace(decision, allowed=False, retry_after=again, source="shadow")
