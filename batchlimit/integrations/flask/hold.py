"""The rules held against one request of Flask: what they said of it, from its start to the end of its response."""

from flask import Request as FlaskRequest
from flask import Response as FlaskResponse

from batchlimit.integrations.enforcement import Outcome, Refusal, Response, RouteLimit, show
from batchlimit.integrations.extension import Rejected, refusal_of_bare, rejected
from batchlimit.integrations.front import Front
from batchlimit.integrations.headers import Header, texts
from batchlimit.integrations.held_permit import spared
from batchlimit.integrations.wsgi.exchange import Environ, StartResponse, WSGIApp, WSGIExchange
from batchlimit.integrations.wsgi.middleware import fields_of, target_of

_PROXY_FIX = "werkzeug.proxy_fix.orig"
"""Where Werkzeug's ProxyFix keeps what it has replaced: it has read the forwarding fields itself."""


class FlaskHold:
    """What the rules say of one request.

    Its methods take the request itself, and not Flask's proxy: each look through that takes half a microsecond.

    Args:
        front: the Front of the application.
    """

    __slots__ = ("_front", "_outcome", "_refusal")

    def __init__(self, front: Front) -> None:
        self._front = front
        self._outcome: Outcome | None = None
        self._refusal: Refusal | None = None

    def __repr__(self) -> str:
        return f"<FlaskHold {self._outcome or 'before the rules were asked'}>"

    def serve(self, app: WSGIApp, environ: Environ, start_response: StartResponse) -> WSGIExchange:
        """Run the application, and settle what was charged when its response has ended."""
        return WSGIExchange(start_response, (), self._settle).run(app, environ)

    def admit(self, request: FlaskRequest) -> Rejected | None:
        """Charge the request to the rules that match; return what refuses it. A second call does nothing."""
        if self._outcome is None:
            self._outcome = self._admitted(request)
            self._refusal = self._outcome.refusal
            show(request.environ, self._outcome)
        return self._rejected(self._outcome.refusal, request)

    def ask(self, limit: RouteLimit, request: FlaskRequest) -> Rejected | None:
        """Charge the request to what its route asks for; return what refuses it."""
        if (refused := self.admit(request)) is not None:
            return refused
        assert self._outcome is not None
        self._refusal = self._front.enforcer.ask(limit, self._outcome, parameters=request.view_args or {})
        show(request.environ, self._outcome)
        return self._rejected(self._refusal, request)

    def tell(self, response: FlaskResponse, request: FlaskRequest) -> FlaskResponse:
        """Add the fields to a response. One that the application made before the rules were asked may be replaced."""
        if self._outcome is None and (refused := self.admit(request)) is not None:
            if refused.refusal.key is None:  # nobody can say who asks, and the answer is there
                return response
            response = FlaskResponse(refused.get_body(), refused.refusal.status, refused.get_headers())
        for name, value in texts(self._fields()):
            response.headers[name] = value
        return response

    def refuse_bare(self, view: str) -> Rejected:
        """Return what refuses a request whose view is registered without its limit."""
        self._refusal = refusal_of_bare(view, self._front.enforcer)
        return rejected(self._refusal)

    def _rejected(self, refusal: Refusal | None, request: FlaskRequest) -> Rejected | None:
        if refusal is None:
            return None
        spared(request.environ)
        return rejected(refusal)

    def _admitted(self, request: FlaskRequest) -> Outcome:
        environ = request.environ
        fields = [each for each in fields_of(environ) if _PROXY_FIX not in environ or b"forwarded" not in each[0]]
        path, root = target_of(environ)
        peer, rule = environ.get("REMOTE_ADDR") or None, request.url_rule
        is_answered = rule is None or getattr(rule, "provide_automatic_options", False)
        return self._front.admit(request.method, path, peer, fields, request, root=root, is_answered=is_answered)

    def _fields(self) -> list[Header]:
        if self._refusal is not None:
            return self._refusal.fields
        return [] if self._outcome is None else self._outcome.headers

    def _settle(self, response: Response) -> None:
        if self._outcome is not None:
            self._front.settle(self._outcome, response)
