"""What the extensions of Flask and Quart have in common: how they are kept, and the HTTP error of a refusal."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from werkzeug.exceptions import Forbidden, HTTPException, ServiceUnavailable, TooManyRequests

from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Refusal, refuse
from batchlimit.integrations.headers import Header, reduced_capacity, texts
from batchlimit.integrations.source import RulesSource
from batchlimit.rules import RuleFile
from batchlimit.rules.file import rules_of

App = TypeVar("App")
Source = TypeVar("Source")
NAME = "batchlimit"
"""Where an application keeps what holds its rules, in `app.extensions`."""
BARE = "a view is registered without its limit: write @limited below @app.route"


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
_KINDS: tuple[Any, ...] = TooManyRequests, ServiceUnavailable, Forbidden
_CLASSES: dict[int, type[Rejected]] = {kind.code: type(f"_{kind.__name__}", (Rejected, kind), {}) for kind in _KINDS}


def rejected(refusal: Refusal, fields: Iterable[Header] = ()) -> Rejected:
    """Return the exception of a refusal, of the class of its status."""
    return _CLASSES[refusal.status](refusal, fields)


class Extension(Generic[App, Source]):
    """Holds rules against the requests of applications, however their framework does that."""

    _current: Callable[[], Any]
    """Returns the application of the request; a proxy of it here would fail whoever looks at the class."""

    def __init__(self, limiter: Source | None, rules: RulesSource, app: App | None = None, **options: Any) -> None:
        if hasattr(limiter, "extensions"):  # it can be called, as a function that makes a limiter
            raise TypeError(f"an application comes last, as in Limits(url, rules, app): not {limiter!r} first")
        now = rules_of(rules)
        self._limiter, self._rules, self._options = limiter, rules if isinstance(rules, RuleFile) else now, options
        self._served: WeakSet[Any] = WeakSet()
        self._last: App | None = None
        if app is not None:
            self.init_app(app)

    def __repr__(self) -> str:
        return f"<Limits {self._rules}>"

    def init_app(self, app: App) -> None:
        """Hold the rules against the requests of an application. One Limits may serve several applications.

        Args:
            app: the application.

        Raises:
            RuntimeError: the application has limits already.
            ValueError, TypeError: there is no URL, it has a typo, or an option cannot work.
        """
        about: Any = app
        if NAME in about.extensions:
            raise RuntimeError("this application has limits already: give all rules to one Limits")
        found: Any = about.config.get("BATCHLIMIT_URL") if self._limiter is None else self._limiter
        if found is None:
            raise ValueError("no store: pass a limiter, or set BATCHLIMIT_URL in the application's configuration")
        self._hold_rules(app, found)
        self._served.add(app)
        self._last = app

    def _hold_rules(self, app: App, limiter: Source) -> None:
        """Put what holds the rules into `app.extensions`, and before the application."""
        raise NotImplementedError

    def statistics(self, app: App | None = None) -> EnforcementStatistics:
        """Return what became of the requests so far, by rule.

        Args:
            app: the application (default None: the current one, or the last one of `init_app`, as for an exporter).

        Returns:
            The EnforcementStatistics of this process.

        Raises:
            RuntimeError: no application has these limits yet.
        """
        about: Any = app
        if app is None:
            with suppress(RuntimeError):  # no application is current
                about = self._current()
            about = about if about in self._served else self._last
        if about is None:
            raise RuntimeError("no application has these limits yet: call init_app")
        return about.extensions[NAME].statistics()  # type: ignore[no-any-return]


def refusal_of_bare(view: str, enforcer: Enforcer | AsyncEnforcer) -> Refusal:
    """Refuse a request of a view that is registered without its limit, and tell the log."""
    error = RuntimeError(BARE)
    enforcer.counters.accuse(view, "requests of the view %r are refused: %s", error)
    return refuse(enforcer.fields, reduced_capacity(), 1.0, error=error)
