"""RateLimitClientInterceptor: rules held against the calls that a threaded client makes."""

from collections.abc import Callable, Iterable
from typing import Any

import grpc

from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import Unidentified
from batchlimit.integrations.front import Front
from batchlimit.integrations.grpc.every_call import EveryCall, Patience, Tell, charged
from batchlimit.integrations.grpc.refused_call import RefusedCall
from batchlimit.integrations.identity import Identity
from batchlimit.integrations.source import LimiterSource
from batchlimit.rules import Rule, RuleFile, Rules


class RateLimitClientInterceptor(EveryCall):
    """Holds rules against the calls that a client makes: a call that is refused never leaves the process.

    It raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED; UNAVAILABLE while the store is away.

    Args:
        limiter: the URL of a store, or a function that makes a RateLimiter at the first call. Either is closed when the
            process ends. Or a RateLimiter with the quotas `rules.quotas`, which its owner closes.
        rules: Rules, several Rule, or a RuleFile. A call is a `POST` whose path is its method in full. Their `charge`
            gets a CallResponse when the call has ended.
        identify: a function of the `grpc.ClientCallDetails` (`method`, `timeout`, `metadata`). It returns values for
            the keys, such as {"tenant": "ann"}, or None (default None: there are none).
        wait: whether calls wait for tokens instead of being refused, until their deadline at most (default False). A
            call that cannot be admitted until then is refused at once. `future` and streams wait before they return.
        timeout: seconds that a call waits at most; only with `wait` (default None: until its deadline).
        unidentified: what becomes of a call of which a rule cannot make the key: "refuse" (default) or "admit".

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import grpc
        >>> from batchlimit.integrations.grpc import RateLimitClientInterceptor
        >>> from batchlimit.rules import Rule
        >>> limits = RateLimitClientInterceptor("memory://", [Rule("mail", "50/s", key="mail")], wait=True)
        >>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), limits)
        >>> channel.close()
    """

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[[grpc.ClientCallDetails], Identity | None] | None = None,
        wait: bool = False,
        timeout: float | None = None,
        unidentified: Unidentified = "refuse",
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._front = Front(limiter, rules, identify=identify, headers="off", unidentified=unidentified)

    def __repr__(self) -> str:
        return f"<RateLimitClientInterceptor {self._front.enforcer.rules}>"

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the calls so far, by rule.

        Returns:
            The EnforcementStatistics of this process.
        """
        return self._front.statistics()

    def _admit(self, details: Any, timeout: float | None) -> Tell | RefusedCall | None:
        outcome = self._front.admit("POST", details.method, None, (), details, timeout=timeout)
        if outcome.refusal is not None:
            return RefusedCall(outcome.refusal)
        return charged(self._front, outcome)
