"""The rules held against one request: what every web face shares, and none of it knows a framework.

A face makes a `rules.Request`, has it admitted, runs the application or writes the refusal, and has it settled:

    outcome = await enforcer.admit(request)       # Enforcer: without await
    if outcome.refusal is None:
        ... run the application; add outcome.headers to its response ...
        await enforcer.settle(outcome, Response(status))   # whatever happened, once, and only if outcome.charges
    else:
        ... write outcome.refusal: status, headers, body ...

All rules are charged at once, or none of them (`decide_all`). What refuses in "shadow" mode is left out then. Nothing
that goes wrong here becomes an exception of the application.

A route asks for one more rule while the application runs, by the key of a rule with `match=None`:

    refusal = await enforcer.ask(RouteLimit("search:{user}", cost=2), outcome)

`outcome.headers` is then another content of the same list, and `outcome.charges` may have grown.

The rule stands once, in generators: each yields what a thread calls and a task awaits, and is sent the result.
"""

from batchlimit.integrations.enforcement.admission import Unidentified
from batchlimit.integrations.enforcement.enforcer import AsyncEnforcer, Enforcer
from batchlimit.integrations.enforcement.outcome import (
    HOLD_NAME,
    NO_STORE,
    SHOWN,
    Outcome,
    Refusal,
    Response,
    decisions,
    refuse,
    unprotected,
)
from batchlimit.integrations.enforcement.plan import RouteLimit

__all__ = [
    "HOLD_NAME",
    "NO_STORE",
    "SHOWN",
    "AsyncEnforcer",
    "Enforcer",
    "Outcome",
    "Refusal",
    "Response",
    "RouteLimit",
    "Unidentified",
    "decisions",
    "refuse",
    "unprotected",
]
