"""RateLimitInterceptor: rules held against the calls of a threaded gRPC server."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Unpack

import grpc

from batchlimit.integrations.arguments import Options
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Outcome
from batchlimit.integrations.front import Front
from batchlimit.integrations.grpc.answer import address_of, ended_with, fields_of, metadata_of, refusal_of
from batchlimit.integrations.grpc.call import Call, Ending, Handler
from batchlimit.integrations.grpc.held import spare
from batchlimit.integrations.identity import Identity
from batchlimit.integrations.source import LimiterSource
from batchlimit.rules import Rule, RuleFile, Rules


class RateLimitInterceptor(grpc.ServerInterceptor):
    """Holds rules against every call of a threaded server, before the handler and before its request is read.

    All rules that match are charged at once, or none of them. A call is a `POST` whose path is its method in full, as
    in `match="/shop.Orders/*"`. A call that a rule refuses ends with RESOURCE_EXHAUSTED, with `retry-after`,
    `grpc-retry-pushback-ms` and `google.rpc.RetryInfo`; with UNAVAILABLE while the store is away; with UNAUTHENTICATED
    if a key cannot be made. A call to a method that is not there is charged too.

    A worker thread asks the rules: the thread that takes in all calls is never held up by a store.

    Args:
        limiter: the URL of a store, or a function that makes a RateLimiter at the first call. Either is closed when the
            process ends. Or a RateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. Their `charge` gets a CallResponse.
        identify: a function of the `grpc.ServicerContext`. It returns values for the keys, such as {"user": "ann"}, or
            None (default None: keys have `ip` alone). If it raises, the rules that need more than `ip` have no key.
        headers: "draft-11" (default), "legacy", "both", "off", or Fields with a `secret` of one's own: trailing
            metadata of calls that are admitted. A handler that sets trailing metadata replaces it.
        proxies: TrustedProxies, whose forwarding fields in the metadata are believed (default None: the peer is the
            client).
        ipv6_prefix: bits of an IPv6 address that make a client (default 56).
        unidentified: what becomes of a call of which a rule cannot make the key: "refuse" (default) or "admit".
        messages: Rules for each message that a stream of requests brings, matched by the method (default none). The
            first one that is refused ends the call.
        checks: True, all checks (default); False; or by name {"unmatched": False}, which leaves the others on.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import grpc
        >>> from batchlimit.integrations.grpc import RateLimitInterceptor
        >>> from batchlimit.rules import Rule
        >>> rules = [Rule("orders", "100/s burst 200", key="orders:{ip}", match="/shop.Orders/*")]
        >>> with ThreadPoolExecutor(4) as workers:
        ...     server = grpc.server(workers, interceptors=[RateLimitInterceptor("memory://", rules)])
        ...     server.stop(None).wait()
        True
    """

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[grpc.ServicerContext], Identity | None] | None = None,
        messages: Rules | Iterable[Rule] = (),
        **options: Unpack[Options],
    ) -> None:
        self._front = Front(limiter, rules, identify=identify, messages=messages, **options)

    def __repr__(self) -> str:
        return f"<RateLimitInterceptor {self._front.enforcer.rules}>"

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Handler | None"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Put the rules before the handler; grpcio calls this.

        Args:
            continuation: Returns the handler of the call.
            handler_call_details: Its method and its metadata.

        Returns:
            The handler behind the rules.
        """
        handler = continuation(handler_call_details) or _MISSING
        return _LimitedCall(self._front, handler_call_details.method, handler).handler()

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the calls so far, by rule; the rules for messages count messages.

        Returns:
            The EnforcementStatistics of this process.
        """
        return self._front.statistics()


class _LimitedCall:
    """One call, and what the rules say of it."""

    __slots__ = ("_front", "_handler", "_method", "_outcome")

    def __init__(self, front: Front, method: str, handler: Handler) -> None:
        self._front, self._method, self._handler = front, method, handler
        self._outcome = Outcome()

    def handler(self) -> Handler:
        receive = self._receive if self._front.limits_messages else None
        return Call(self._handler, self._begin, receive).handler()

    def _begin(self, context: Any) -> Ending:
        """Charge the call; or refuse it, which raises."""
        if not context.is_active():  # its client left before a worker was free
            context.abort(grpc.StatusCode.CANCELLED, "The client has left!")
        fields = fields_of(context.invocation_metadata())
        self._outcome = outcome = self._front.admit("POST", self._method, address_of(context.peer()), fields, context)
        if outcome.refusal is not None:
            spare()
            refusal_of(outcome.refusal).end(context)
        if outcome.headers:
            context.set_trailing_metadata(metadata_of(outcome.headers))

        def ended(code: grpc.StatusCode | None, error: BaseException | None, sent: int) -> None:
            if outcome.charges:
                self._front.settle(outcome, ended_with(context, code, error, sent))

        return Ending(context, ended)

    def _receive(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            if (refused := self._front.refused_message(self._outcome.request)) is not None:
                refusal_of(refused).end(context)
            yield request


def _missing(requests: object, context: grpc.ServicerContext) -> object:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


_MISSING: Handler = grpc.stream_unary_rpc_method_handler(_missing)
