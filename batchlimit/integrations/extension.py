"""What the extensions of Flask and Quart have in common: how they are kept, and where their limiter comes from."""

from typing import Any

from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Refusal, refuse
from batchlimit.integrations.problem import reduced_capacity

NAME = "batchlimit"
"""Where an application keeps what holds its rules, in `app.extensions`."""
BARE = "a view is registered without its limit: write @limited below @app.route"


def source_for(app: Any, given: object) -> Any:
    """Return where the limiter of an application comes from, which has no limits yet.

    Args:
        app: the application.
        given: what the extension was made with; None: the setting `BATCHLIMIT_URL`.

    Returns:
        The source that was given, or the URL.

    Raises:
        RuntimeError: the application has limits already.
        ValueError: there is no URL.
    """
    if NAME in app.extensions:
        raise RuntimeError("this application has limits already: give all rules to one Limits")
    found = app.config.get("BATCHLIMIT_URL") if given is None else given
    if found is None:
        raise ValueError("no store: pass a limiter, or set BATCHLIMIT_URL in the application's configuration")
    return found


def refusal_of_bare(view: str, enforcer: Enforcer | AsyncEnforcer) -> Refusal:
    """Refuse a request of a view that is registered without its limit, and tell the log."""
    error = RuntimeError(BARE)
    enforcer.counters.accuse(view, "requests of the view %r are refused: %s", error)
    return refuse(enforcer.fields, reduced_capacity(), 1.0, error=error)


def statistics_of(app: Any) -> EnforcementStatistics:
    """Return what became of the requests of an application that has limits."""
    found: EnforcementStatistics = app.extensions[NAME].statistics()
    return found
