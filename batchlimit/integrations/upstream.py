"""What all transports share: a request is charged, then sent or answered, and what upstream says of it is heeded."""

import io
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from operator import attrgetter, methodcaller
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar
from urllib.parse import unquote, urlsplit

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.decision import whole_seconds
from batchlimit.base.key import NeverFits, check_cost, check_key, check_priority
from batchlimit.base.redaction import shown
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import patience
from batchlimit.errors import ConcurrencyLimited, RateLimited, StoreUnavailable, Unfit
from batchlimit.integrations.headers import MEDIA_TYPE, REDUCED_CAPACITY, Problem, quota_exceeded, reduced_capacity
from batchlimit.integrations.pacing import Pacer
from batchlimit.integrations.told import observe, told_to_wait
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.reservoir.options import check_seconds

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import Concurrency, OutgoingPermit

L = TypeVar("L", bound=RateLimiter | AsyncRateLimiter)
TOO_MANY, UNAVAILABLE = 429, 503
FORBIDDEN, OVERLOADED = 403, 529
"""What GitHub says for 429, and Anthropic for 503: heeded by who observes."""
Observe = bool | Mapping[str, str]
_REFUSALS = (TOO_MANY, UNAVAILABLE)
USUAL_PORTS = {"http": 80, "https": 443}
_FIELDS = {"host", "port", "scheme", "method", "path"}


class Outgoing(NamedTuple):
    """An outgoing request, as far as its key may name it: alike for all libraries, so `outgoing` makes it."""

    host: str  # of the URL as it is sent: in lower case, and "xn--..." where it is not ASCII
    port: str  # of the URL, as text; "" for the usual one
    scheme: str  # such as "https"
    method: str  # such as "GET"
    path: str  # of the URL, without the query and without %-escapes


def outgoing(method: str, scheme: str, host: str, port: int | None, path: str) -> Outgoing:
    """Name a request by host and path as they are sent, and whatever port."""
    number = "" if port is None or port == USUAL_PORTS.get(scheme) else str(port)
    return Outgoing(host, number, scheme, method, unquote(path) if "%" in path else path)


def outgoing_to(request: Any) -> Outgoing:
    """Name a request that has a method, and its URL as text."""
    url = urlsplit(str(request.url))
    return outgoing(str(request.method), url.scheme, url.hostname or "", url.port, url.path)


class Unsent(NamedTuple):
    """A response that is made here, for a request that is not sent."""

    status: int  # 429, or 503 while the store is away
    headers: dict[str, str]  # of the response
    body: bytes  # problem details, as JSON; nothing where only the head was asked for


class Library(NamedTuple):
    """What transports need to know of a library of requests."""

    limiter: type[RateLimiter | AsyncRateLimiter]  # the class of limiters that its requests can wait for
    outgoing: Callable[[Any], Outgoing]  # returns what a key may name of a request
    answer: Callable[[Any, Unsent], Any]  # returns the library's response to a request that is not sent
    body: Callable[[Any], Any]  # reads the body of a response; its caller can still read it, as far as it came
    # holds a permit until a response was read or closed; ends it where that is so already
    hold: "Callable[[Any, OutgoingPermit], None]"
    status: Callable[[Any], int] = attrgetter("status_code")  # returns the status of a response
    close: Callable[[Any], Any] = methodcaller("close")  # closes a response that its caller does not get
    # has a response that has not come yet go through these steps when it comes; False: it has come. None: what is sent
    # always comes
    later: Callable[[Any, Callable[[Any], Steps[None]]], bool] | None = None


class TransportTerms(TypedDict, total=False):
    """How requests are limited: the options that all transports have, as a LimitedTransport tells them."""

    cost: int | Callable[[Any], int]
    wait: float | None
    longest: float
    unsaid: float
    observe: Observe
    concurrency: "Concurrency | None"
    priority: int | Callable[[Any], int]


class Upstream:
    """How requests to others are limited; the terms are those of LimitedTransport."""

    __slots__ = (
        "_cost", "_key", "_library", "_limiter", "_longest", "_pacer", "_priority", "_unsaid", "_wait", "admission"
    )  # fmt: skip

    def __init__(
        self, limiter: RateLimiter | AsyncRateLimiter, library: Library, key: "str | Callable[[Any], str]" = "{host}",
        *, cost: "int | Callable[[Any], int]" = 1, wait: float | None = 30.0, longest: float = 600.0,
        unsaid: float = 1.0, observe: Observe = False, concurrency: "Concurrency | None" = None,
        priority: "int | Callable[[Any], int]" = 1,
    ) -> None:  # fmt: skip
        if not isinstance(limiter, library.limiter):
            raise TypeError(f"this client needs limiter={library.limiter.__name__}(...), not {limiter!r}")
        if isinstance(key, str):
            unknown = {name for _, name, _, _ in Formatter().parse(key) if name is not None} - _FIELDS
            if unknown or not key:
                raise ValueError(f"a key has fields of {sorted(_FIELDS)}, and is not empty: not {shown(key)}")
        elif not callable(key):
            raise TypeError(f"key must be a str or a function of the request, not {shown(key)}")
        if not callable(cost):
            check_cost(cost, LARGEST_BURST, "requests")
        if not callable(priority):
            check_priority(priority)
        patience(wait, "wait")
        check_seconds("unsaid", unsaid, may_be_0=True)
        check_seconds("longest", longest)
        self._limiter, self._library, self._key, self._cost, self._wait = limiter, library, key, cost, wait
        self._longest, self._unsaid, self._priority = longest, unsaid, priority
        if not isinstance(observe, bool | Mapping):
            raise TypeError(f"observe must be a bool, or a dict from kinds to keys, not {shown(observe)}")
        keys = {kind: check_key(key) for kind, key in observe.items()} if isinstance(observe, Mapping) else None
        self._pacer = None if observe is False else Pacer(keys, longest)
        self.admission: Any = None  # or what gives a request its tokens and its permit
        if concurrency is not None:
            from batchlimit.integrations.outgoing_permit import admission

            self.admission = admission(limiter, concurrency)

    def __repr__(self) -> str:
        return f"<Upstream {shown(self._key)}>"

    def steps(self, request: Any, send: Callable[[], Any]) -> Steps[Any]:
        """Charge a request, and send or answer it; return the response."""
        call = self._library.outgoing(request)
        key, cost = self.charge(request, call)
        permit = None
        try:
            if self.admission is not None:
                permit = yield self.admission.admit(key, key, cost=cost, timeout=self._wait, **self._rank(request))
            elif self._limiter.take_leased({key: cost}) is None:  # a hit by `acquire` takes longer
                yield self._limiter.acquire(key, cost, timeout=self._wait, **self._rank(request))
        except (RateLimited, ConcurrencyLimited, StoreUnavailable) as error:
            return self._library.answer(request, refused(error, call.method))
        except NeverFits as never:
            if not callable(self._cost):
                raise
            answer = Unfit(never.key, never.cost, never.largest)  # of this request
            return self._library.answer(request, refused(answer, call.method))
        sent = self._sent(key, send)
        return (yield from sent if permit is None else self._held(permit, sent))

    def _sent(self, key: str, send: Callable[[], Any]) -> Steps[Any]:
        """Send a request, and heed what its response says; return the response."""
        response, later = (yield send()), self._library.later
        if later is None or not later(response, partial(self._heed, key)):
            yield from self._heed(key, response)
        return response

    def _heed(self, key: str, response: Any) -> Steps[None]:
        status = self._library.status(response)
        try:
            body, headers = b"", response.headers
            # The body of a refusal may say what the header fields do not, to who observes.
            may_say = self._pacer is not None and status in (*_REFUSALS, FORBIDDEN)
            if may_say and "json" in headers.get("content-type", "") and told_to_wait(headers, time.time()) is None:
                with suppress(Exception):  # its caller will see the same error, and the key is paused without it
                    body = yield self._library.body(response)
            for name, seconds, why in self.pauses(key, status, response.headers, body):
                with suppress(StoreUnavailable):  # this process pauses all the same
                    yield self._limiter.pause(name, seconds, why=why)
        except BaseException:  # such as a cancellation
            yield self._library.close(response)
            raise

    def _held(self, permit: Any, sent: Steps[Any]) -> Steps[Any]:
        """Send a request that has this permit, which is given back when its response was read, or there is none."""
        from batchlimit.concurrency.classification import outcome_of_answer
        from batchlimit.integrations.outgoing_permit import OutgoingPermit

        held = OutgoingPermit(permit)
        try:
            response = yield from sent
            held.outcome = outcome_of_answer(response)
            self._library.hold(response, held)
        except BaseException as error:
            held.end(error)
            raise
        return response

    def charge(self, request: Any, call: Outgoing) -> tuple[str, int]:
        """Return key and cost of a request."""
        key = self._key.format_map(call._asdict()) if isinstance(self._key, str) else self._key(request)
        return key, self._cost(request) if callable(self._cost) else self._cost

    def _rank(self, request: Any) -> dict[str, int]:
        """Return the priority of a request that has to wait, as an option; none where all have the same."""
        if callable(self._priority):
            return {"priority": check_priority(self._priority(request))}
        return {} if self._priority == 1 else {"priority": self._priority}

    def pauses(
        self, key: str, status: int, headers: Mapping[str, str], body: bytes = b""
    ) -> list[tuple[str, float, str]]:
        """Return which keys a response to a request of this key pauses, for how many seconds, and why."""
        pauses, is_refusal, after = list[tuple[str, float, str]](), status in _REFUSALS, None
        if self._pacer is not None:
            after, allowances = observe(headers, time.time(), status=status, body=body)
            held_back = self._pacer.pauses(key, allowances, time.monotonic())
            pauses += [(name, seconds, "little is left at upstream") for name, seconds in held_back.items()]
            is_refusal = is_refusal or status in (FORBIDDEN, OVERLOADED)
        elif is_refusal:
            after = told_to_wait(headers, time.time())
        unsaid = self._unsaid if status == TOO_MANY else 0.0
        if is_refusal and (seconds := unsaid if after is None else min(after, self._longest)):
            pauses.append((key, seconds, f"{status} of upstream"))
        return pauses


def refused(error: RateLimited | ConcurrencyLimited | StoreUnavailable, method: str) -> Unsent:
    """Return the response to a request of this method that is not sent, because of this error."""
    if isinstance(error, RateLimited):
        detail = str(error) if isinstance(error, Unfit) else ""
        status, problem, after = TOO_MANY, replace(quota_exceeded(()), detail=detail).body(), error.retry_after
    elif isinstance(error, ConcurrencyLimited):
        detail = "too many requests are under way from here"
        status, problem, after = TOO_MANY, replace(reduced_capacity((), detail), status=TOO_MANY).body(), 1.0
        after = after if error.retry_after is None else error.retry_after
    else:
        title = "The store of the rate limit cannot be reached"
        status, problem, after = UNAVAILABLE, Problem(UNAVAILABLE, REDUCED_CAPACITY, title).body(), 1.0
    headers = {"content-type": MEDIA_TYPE.decode(), "content-length": str(len(problem)), "x-batchlimit": "not sent"}
    if (seconds := whole_seconds(after)) is not None:
        headers |= {"retry-after": str(seconds), "retry-after-ms": str(math.ceil(after * 1000))}
    else:
        headers["x-should-retry"] = "false"  # so that SDKs do not
    return Unsent(status, headers, b"" if method == "HEAD" else problem)


def answer_of(kind: Any, method: str | None, answer: tuple[int, Any, bytes]) -> Any:
    """Return the response, of this class of an urllib3, to a request that was not sent."""
    status, headers, body = answer
    phrase = HTTPStatus(status).phrase
    return kind(io.BytesIO(body), headers, status, reason=phrase, preload_content=False, request_method=method)


def again(parts: list[bytes], error: Exception) -> Iterator[bytes]:
    """Yield what was read of a body, and raise what ended it."""
    yield from parts
    raise error


class LimitedSender(Generic[L]):
    """What an adapter of a session takes beside the options of its library."""

    library: Library

    def __init__(self, limiter: L, key: str | Callable[[Any], str] = "{host}", **options: Any) -> None:
        terms: Any = {name: options.pop(name) for name in TransportTerms.__annotations__ if name in options}
        super().__init__(**options)
        self._upstream = Upstream(limiter, self.library, key, **terms)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._upstream!r}>"
