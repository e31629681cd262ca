"""What the extensions of Flask and Quart have in common: how they are kept, and the HTTP error of a refusal."""

from collections.abc import Iterable
from typing import Any

from werkzeug.exceptions import Forbidden, HTTPException, ServiceUnavailable, TooManyRequests

from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Refusal, refuse
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.problem import reduced_capacity


class Rejected(HTTPException):
    """A rule refuses a request. Without a handler it is answered with problem details.

    A handler for this class, for its status or for HTTPException answers instead. The fields of the refusal are added
    to its answer.

    Args:
        refusal: why, and what is answered.
        fields: header fields that nobody else adds to the answer (default none).

    Attributes:
        refusal: the Refusal: `status`, `rules`, `key`, `retry_after`, `error`.

    Example:
        >>> from batchlimit.integrations.enforcement import Refusal
        >>> rejected(Refusal(429, ("login",), None, 1.0, [], b"")).code
        429
    """

    def __init__(self, refusal: Refusal, fields: Iterable[Header] = ()) -> None:
        super().__init__(f"refused by {', '.join(refusal.rules)}" if refusal.rules else None)
        self.refusal, self._fields = refusal, [*refusal.kind, *fields]

    def get_headers(self, *_: Any) -> list[tuple[str, str]]:
        """Return the type of the body; the extension adds the other fields."""
        return texts(self._fields)

    def get_body(self, *_: Any) -> str:
        """Return problem details as JSON."""
        return self.refusal.body.decode()


# Flask finds handlers by the status of the class.


class _TooManyRequests(Rejected, TooManyRequests):
    """A rule has no token."""


class _ServiceUnavailable(Rejected, ServiceUnavailable):
    """A rule cannot be asked."""


class _Forbidden(Rejected, Forbidden):
    """Nobody can say who asks."""


_CLASSES: dict[int, type[Rejected]] = {429: _TooManyRequests, 503: _ServiceUnavailable, 403: _Forbidden}


def rejected(refusal: Refusal, fields: Iterable[Header] = ()) -> Rejected:
    """Return the exception of a refusal, of the class of its status."""
    return _CLASSES[refusal.status](refusal, fields)


NAME = "batchlimit"
"""Where an application keeps what holds its rules, in `app.extensions`."""
BARE = "a view is registered without its limit: write @limited below @app.route"


def source_for(app: Any, given: object) -> Any:
    """Return where the limiter of an application comes from, which has no limits yet."""
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
