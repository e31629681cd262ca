"""ConcurrencyLimitMiddleware: how many requests of a WSGI application are under way at once."""

from collections.abc import Callable, Iterable

from batchlimit import BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import THREADED
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.held_permit import PERMIT
from batchlimit.integrations.operation import noting_route, route_of
from batchlimit.integrations.permit_source import KeyOf
from batchlimit.integrations.permits import OutcomeOf, WebPermits, outcome_of, refusal_of
from batchlimit.integrations.wsgi.exchange import Environ, StartResponse, WSGIApp, WSGIExchange, answer
from batchlimit.shared import SharedConcurrencyLimiter


class ConcurrencyLimitMiddleware:
    """Lets as many requests into the application at once as a concurrency limiter allows; the others get a 503.

    A request holds its permit until its response has ended: a stream, until its last part. How it ended feeds the law
    of the limiter. The environ has the permit as "batchlimit.permit". Nobody can end a thread whose shared permit is
    lost: a long request is to call `environ["batchlimit.permit"].check()` before each step that must not happen twice.

    Args:
        app: the application.
        limiter: the ConcurrencyLimiter, KeyedConcurrencyLimiter or SharedConcurrencyLimiter; its owner closes it.
        partition: a function of the environ that returns the name of the request's partition (default None: none).
        key: a function of the environ that returns the key of the request, for a limiter by key; or several keys, for a
            keyed one (default None: the limiter has no keys). A request is refused if it raises.
        timeout: how long a request waits for its permit, where the limiter has a queue (seconds, default 0). It keeps
            the worker thread meanwhile.
        outcome: a function of the Response that says what it tells about the load (default `outcome_of`).
        priority: a function of the environ that returns the priority of the request, a whole number: high ones are
            served first in the limiter's queue (default None: 0 for all).
        bypass: a function of the environ; requests of which it returns True are not limited (default None: all are).
        operation: a function of the environ that returns what kind of request it is, for laws that hold unlike kinds
            apart. It is called when the response has ended (default `route_of`: the method and the route's template).

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> def app(environ, start_response):
        ...     start_response("200 OK", [])
        ...     return [b"hello"]
        >>> limiter, statuses = ConcurrencyLimiter(Fixed(1)), []
        >>> limited = ConcurrencyLimitMiddleware(app, limiter)
        >>> with limiter.acquire():  # another request is under way
        ...     body = limited({"REQUEST_METHOD": "GET"}, lambda status, headers: statuses.append(status))
        >>> statuses
        ['503 Service Unavailable']
        >>> limiter.close()
    """

    def __init__(
        self,
        app: WSGIApp,
        limiter: ConcurrencyLimiter | KeyedConcurrencyLimiter | SharedConcurrencyLimiter,
        *,
        partition: Callable[[Environ], str] | None = None,
        key: KeyOf | None = None,
        timeout: float = 0.0,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Environ], int] | None = None,
        bypass: Callable[[Environ], bool] | None = None,
        operation: Callable[[Environ], str] = route_of,
    ) -> None:
        self.app = app
        self._permits = WebPermits(THREADED, limiter, partition, key, timeout, outcome, priority, bypass, operation)

    def __repr__(self) -> str:
        return f"<ConcurrencyLimitMiddleware by {self._permits}>"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as any WSGI application."""
        if self._permits.passes_by(environ):
            return self.app(environ, start_response)
        try:
            permit = self._permits.acquire(environ)
        except BatchLimitError as error:
            return answer(refusal_of(error), environ, start_response)
        environ[PERMIT] = permit
        start = noting_route(environ, start_response)
        exchange = WSGIExchange(start, (), lambda response: self._permits.complete(permit, environ, response))
        return exchange.run(self.app, environ)
