"""The rules before a threaded application: what WSGI, Flask, Django and gRPC have in common."""

from collections.abc import Callable, Iterable
from typing import Unpack

from batchlimit import RateLimiter
from batchlimit.integrations.arguments import Arguments, FrontOptions, counted
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Enforcer, Outcome, Refusal, Response
from batchlimit.integrations.headers import Header
from batchlimit.integrations.identity import identity_of
from batchlimit.integrations.source import LimiterSource, LimiterSupply
from batchlimit.rules import Request, Rule, RuleFile, Rules
from batchlimit.rules.request import request_of


class Front:
    """Holds rules against the requests of a threaded application.

    Args:
        limiter: the URL of a store, a RateLimiter with the quotas `rules.quotas`, or a function that makes one.
        rules: Rules, several Rule, or a RuleFile.
        identify: a function of the framework's request. It returns values for the keys, such as {"user": "ann"}, or
            None (default None: keys have `ip` alone). If it raises, the rules that need more than `ip` have no key.
        headers: "draft-11" (default), "legacy", "both", "off", or Fields with a `secret` of one's own.
        proxies: TrustedProxies, whose forwarding fields are believed (default None: the peer is the client).
        ipv6_prefix: bits of an IPv6 address that make a client (default 56).
        unidentified: what becomes of a request of which a rule cannot make the key: "refuse" (default) or "admit".
        messages: Rules for each message of a stream (default none).
        limit_preflight: whether CORS preflights that the framework answers are limited as well (default False).
        checks: True, all checks (default); False; or by name {"unmatched": False}, which leaves the others on.
        enabled: False admits every request and asks nothing: no store, no function of yours (default True).

    Attributes:
        enforcer: the Enforcer.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> front = Front("memory://", [Rule("all", "1/hour", key="all:{ip}")])
        >>> [front.admit("GET", "/", "192.0.2.1", []).refusal is None for _ in range(2)]
        [True, False]
    """

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[..., object] | None = None,
        messages: Rules | Iterable[Rule] = (),
        limit_preflight: bool = False,
        **options: Unpack[FrontOptions],
    ) -> None:
        given = Arguments(limiter, rules, messages=messages, **options)
        self.enforcer, self._messages = given.enforcers(Enforcer, LimiterSupply(given.maker(RateLimiter)))
        self._addresses, self._identify = given.addresses, identify if given.enabled else None
        self._limits_preflight = limit_preflight

    @property
    def limits_messages(self) -> bool:
        """Whether there are rules for messages."""
        return self._messages is not None

    def admit(
        self,
        method: str,
        path: str,
        peer: str | None,
        headers: Iterable[Header],
        native: object = None,
        *,
        root: str = "",
        is_answered: bool = False,
        timeout: float | None = 0.0,
    ) -> Outcome:
        """Charge a request to all rules that apply, or to none of them.

        Args:
            method: its method.
            path: its whole path, percent-decoded once and without the query.
            peer: the address of the connection's other end; None: it has none, as a Unix socket.
            headers: names in lower case and values; those that `wanted` names are enough.
            native: the framework's request, for `identify` and for the functions of rules (default None).
            root: where the application is mounted, as for `rules.Request` (default "").
            is_answered: whether the framework answers an OPTIONS request itself: a CORS preflight is free then (default
                False: it is charged, for it may run a handler).
            timeout: seconds to wait for tokens at most; None: no limit (default 0: it does not wait).

        Returns:
            The Outcome; that of a free preflight says nothing.
        """
        headers = tuple(headers)
        known = self._addresses.of(peer, 1, headers)
        request = request_of((method, path, identity_of(known, self._identify, native), native, root))
        if is_answered and method == "OPTIONS" and not self._limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return self.enforcer.admit(request, timeout=timeout)

    def refused_message(self, request: Request | None) -> Refusal | None:
        """Charge a message of a request to the rules for messages; return why it is refused, or None."""
        return None if self._messages is None or request is None else self._messages.admit(request).refusal

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; a second call does nothing."""
        self.enforcer.settle(outcome, response)

    def statistics(self) -> EnforcementStatistics:
        """Return what became of requests and messages so far, by rule, in this process."""
        return counted(self.enforcer, self._messages)


wanted = ("x-forwarded-for", "forwarded", "origin", "access-control-request-method")
"""The header fields that a Front looks at."""


def is_preflight(headers: Iterable[Header]) -> bool:
    """Whether an OPTIONS request with these fields is a CORS preflight."""
    names = {name for name, _ in headers}
    return b"origin" in names and b"access-control-request-method" in names
