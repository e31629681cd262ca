"""ConcurrencyLimitMiddleware: how many requests of a WSGI application are under way at once."""

from collections.abc import Iterable

from batchlimit import BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import THREADED
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.carried import PERMIT, noting_route
from batchlimit.integrations.permits import PermitMiddleware, refusal_of
from batchlimit.integrations.wsgi.middleware import Environ, StartResponse, WSGIApp, WSGIExchange, answer
from batchlimit.shared import SharedConcurrencyLimiter


class ConcurrencyLimitMiddleware(
    PermitMiddleware[ConcurrencyLimiter | KeyedConcurrencyLimiter | SharedConcurrencyLimiter]
):
    """Lets as many requests into the application at once as a concurrency limiter allows; the others get a 503.

    A request holds its permit until its response has ended: a stream, until its last part. How it ended feeds the law
    of the limiter. The environ has the permit as "batchlimit.permit". Nobody can end a thread whose shared permit is
    lost: a long request is to call `environ["batchlimit.permit"].check()` before each step that must not happen twice.

    Args:
        app: the application.
        limiter: the ConcurrencyLimiter, KeyedConcurrencyLimiter or SharedConcurrencyLimiter; its owner closes it.
        partition, key, timeout, outcome, priority, bypass, operation: as of ConcurrencyLimit, with the same defaults.
            The functions get the environ, but for `outcome`. A request that waits keeps the worker thread meanwhile.

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

    _kinds = THREADED
    app: WSGIApp

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
