"""The rules before an application: what all faces share, with the arguments that they all take.

`Front` is that of threads, as WSGI, Flask, Django and gRPC; `AsyncFront` that of one event loop.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from types import CoroutineType
from typing import Any, Generic, TypedDict, TypeVar

from batchlimit import RateLimiter
from batchlimit.integrations.address import Addresses, TrustedProxies, identity_of
from batchlimit.integrations.checks import Checks, ChecksSetting
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Refusal, Response, Unidentified
from batchlimit.integrations.headers import Fields, Form, Header
from batchlimit.integrations.source import AsyncLimiterSource, LimiterHome, LimiterSource, RulesSource
from batchlimit.rules import Request, Rule, RuleFile, Rules, RulesError
from batchlimit.rules.file import rules_of
from batchlimit.rules.request import request_of

E = TypeVar("E", Enforcer, AsyncEnforcer)
wanted = ("x-forwarded-for", "forwarded", "origin", "access-control-request-method")
"""The header fields that a front looks at."""


class FrontOptions(TypedDict, total=False):
    """Arguments that faces pass on as they are; RateLimitMiddleware of ASGI says what each one means."""

    headers: Form | Fields
    proxies: TrustedProxies | None
    ipv6_prefix: int
    unidentified: Unidentified
    checks: ChecksSetting
    enabled: bool


class WebOptions(FrontOptions, total=False):
    """Those of faces that browsers speak to."""

    limit_preflight: bool


class _Front(Generic[E]):
    """What both APIs share: the rules of a face, and what is made of its other arguments."""

    def __init__(
        self,
        enforcer: type[E],
        kind: type[Any],
        source: Any,
        rules: RulesSource,
        *,
        identify: Callable[..., object] | None = None,
        messages: Rules | Iterable[Rule] = (),
        limit_preflight: bool = False,
        headers: Form | Fields = "draft-11",
        proxies: TrustedProxies | None = None,
        ipv6_prefix: int = 56,
        unidentified: Unidentified = "refuse",
        checks: ChecksSetting = True,
        enabled: bool = True,
        **unknown: object,
    ) -> None:
        for name in unknown:
            near = get_close_matches(name, ("identify", *WebOptions.__annotations__), 1)
            owner = next((each.__name__ for each in (Rule, Rules, kind) if name in signature(each).parameters), "")
            meant = f"write {owner}(..., {name}=...)" if owner else near and f"did you mean {near[0]!r}?"
            raise TypeError(f"there is no option {name!r}{f': {meant}' if meant else ''}")
        for name, given in (("enabled", enabled), ("limit_preflight", limit_preflight)):
            if not isinstance(given, bool):
                raise TypeError(f"{name} is True or False, not {given!r}")
        if not (identify is None or callable(identify)):
            raise TypeError(f"identify is a function that returns values for keys, not {identify!r}")
        of_requests = rules if isinstance(rules, RuleFile) else rules_of(rules)
        of_messages = rules_of(messages)
        every = _together(of_requests, of_messages)
        found = Checks(checks).begin(source, every, ipv6_prefix, enabled=enabled)
        self.addresses = Addresses(proxies, ipv6_prefix, checks=found)
        if not enabled:
            source = "memory://"  # of which nothing is asked: not even a function that would make a limiter
        self.home = home = LimiterHome(kind, source, rules if isinstance(rules, RuleFile) else every, found)
        fields = headers if isinstance(headers, Fields) else Fields(headers)
        options: Any = {"headers": fields, "unidentified": unidentified, "checks": found, "enabled": enabled}
        own = partial(vars(home).get, "limiter") if isinstance(source, str) else None
        self.open = limiter = partial(getattr, home, "limiter")
        self.enforcer: E = enforcer(limiter, of_requests, own=own, **options)
        self.of_messages: E | None = enforcer(limiter, of_messages, **options) if of_messages else None
        self.identify = identify if enabled else None
        self.limits_preflight = limit_preflight

    def statistics(self) -> EnforcementStatistics:
        """Return what became of requests and messages so far, by rule, in this process."""
        counts = self.enforcer.statistics()
        if self.of_messages is None:
            return counts
        return replace(counts, rules={**counts.rules, **self.of_messages.statistics().rules})


def _together(of_requests: RuleFile | Rules, of_messages: Rules) -> Rules:
    """Return the rules for requests and those for messages, if these can be held beside each other."""
    for rule in of_messages:
        if rule.charge is not None:
            raise RulesError("a message has no response to charge by: leave it out", rule=rule.name, field="charge")
    if of_messages and isinstance(of_requests, RuleFile):
        raise ValueError("messages cannot have rules beside those of a RuleFile: put both into Rules")
    known = rules_of(of_requests)
    every = Rules([*known, *of_messages], limits={**known.own_quotas, **of_messages.own_quotas})
    if not every:
        raise ValueError("no rules, so nothing would be limited: add one, as Rule('all', '100/s', key='all:{ip}')")
    return every


class Front(_Front[Enforcer]):
    """Holds rules against the requests of a threaded application; the arguments are those of WSGI's middleware."""

    def __init__(self, limiter: LimiterSource, rules: RulesSource, **options: Any) -> None:
        super().__init__(Enforcer, RateLimiter, limiter, rules, **options)
        self.settle = self.enforcer.settle

    def admit(
        self, method: str, path: str, peer: str | None, headers: Iterable[Header], native: object = None,
        *, root: str = "", is_answered: bool = False, timeout: float | None = 0.0,
    ) -> Outcome:  # fmt: skip
        """Charge a request to all rules that apply, or to none of them.

        The path is the whole one, percent-decoded once and without the query. Of the header fields those that are
        `wanted` are enough. A CORS preflight is free where the framework answers an OPTIONS request itself
        (`is_answered`): elsewhere it may run a handler. It waits for tokens up to `timeout` (s; None: no limit).
        """
        headers = tuple(headers)
        known = self.addresses.of(peer, 1, headers)
        request = request_of((method, path, identity_of(known, self.identify, native), native, root))
        if is_answered and method == "OPTIONS" and not self.limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return self.enforcer.admit(request, timeout=timeout)

    def refused_message(self, request: Request | None) -> Refusal | None:
        """Charge a message of a request to the rules for messages; return why it is refused, or None."""
        return None if self.of_messages is None or request is None else self.of_messages.admit(request).refusal


class AsyncFront(_Front[AsyncEnforcer]):
    """Holds rules against requests on one event loop; `identify` may be async, `close` closes a limiter made here."""

    def __init__(self, limiter: AsyncLimiterSource, rules: RulesSource, **options: Any) -> None:
        from batchlimit import AsyncRateLimiter

        super().__init__(AsyncEnforcer, AsyncRateLimiter, limiter, rules, **options)
        self.close = self.home.close

    async def admit(
        self, method: str, path: str, peer: str | None, headers: Iterable[Header], native: object = None,
        *, root: str = "", is_answered: bool = False, timeout: float | None = 0.0,
    ) -> Outcome:  # fmt: skip
        """Charge a request to all rules that apply, or to none of them; as Front.admit."""
        headers = tuple(headers)
        identity = identity_of(self.addresses.of(peer, 1, headers), self.identify, native, may_await=True)
        if isinstance(identity, CoroutineType):
            identity = await identity
        request = request_of((method, path, identity, native, root))
        if is_answered and method == "OPTIONS" and not self.limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return await self.enforcer.admit(request, timeout=timeout)

    async def refused_message(self, request: Request | None) -> Refusal | None:
        """Charge a message of a request to the rules for messages; return why it is refused, or None."""
        if self.of_messages is None or request is None:
            return None
        return (await self.of_messages.admit(request)).refusal

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; what has to be awaited, in a task that nobody cancels with the request."""
        if (rest := self.enforcer.settle_ahead(outcome, response)) is not None:
            self.home.settle(rest)


def is_preflight(headers: Iterable[Header]) -> bool:
    """Whether an OPTIONS request with these fields is a CORS preflight."""
    names = {name for name, _ in headers}
    return b"origin" in names and b"access-control-request-method" in names
