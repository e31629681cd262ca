"""What can go wrong, split by who should act.

    BatchLimitError
    ├── RateLimited        the caller waits: no token now; `retry_after` says when
    │   └── Unfit          the caller asks for less: a reservation of so much never fits the burst
    ├── ConcurrencyLimited the caller waits: too many calls are under way; `reason` and `retry_after` say more
    ├── PermitLost         the caller stops: its permit of a shared limit may be somebody else's by now
    ├── StoreUnavailable   the operator looks: the store did not answer, or cannot serve
    │   └── BucketUnavailable   nor can it serve this key; the others it may
    ├── RulesChanged       the operator looks: somebody else changed the same override at the same moment
    ├── LimiterClosed      the programmer looks: the limiter was used after close()
    └── WatcherUnavailable the operator looks: this machine does not tell what a watcher would watch

Arguments that can never work (a cost above the burst, a quota with a typo) raise ValueError or TypeError. The estimate
of a reservation comes from data, so one above the burst is Unfit.
"""

import math

from batchlimit.base.decision import Decision, Retry
from batchlimit.base.redaction import shown

__all__ = [
    "BatchLimitError",
    "BucketUnavailable",
    "ConcurrencyLimited",
    "LimiterClosed",
    "PermitLost",
    "RateLimited",
    "RulesChanged",
    "StoreUnavailable",
    "Unfit",
    "WatcherUnavailable",
]


class BatchLimitError(Exception):
    """The base of every error that batchlimit raises for a reason outside the call's arguments.

    Example:
        >>> from batchlimit import BatchLimitError, RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "1/hour")
        >>> limiter.acquire("ann")
        >>> try:
        ...     limiter.acquire("ann", timeout=0)
        ... except BatchLimitError as error:
        ...     type(error).__name__
        'RateLimited'
    """


class RateLimited(Retry, BatchLimitError):
    """The quota has no token for this call now: the caller waits.

    Attributes:
        key: the key that is over its quota; of several the one that is short.
        retry_after: seconds until the same cost is expected to fit; inf: never.
        decision: the Decision on this call: `limit`, `remaining`, `reset_after`. The limiters always give it.

    Example:
        >>> from batchlimit import RateLimited, RateLimiter
        >>> limiter, headers = RateLimiter.from_url("memory://", "1/hour"), {}
        >>> limiter.acquire("ann")
        >>> try:
        ...     limiter.acquire("ann", timeout=0)
        ... except RateLimited as refusal:
        ...     if (seconds := refusal.retry_after_seconds) is not None:
        ...         headers["Retry-After"] = str(seconds)
        >>> list(headers)
        ['Retry-After']
    """

    retry_after: float
    decision: "Decision"

    def __init__(self, key: str, retry_after: float, decision: "Decision | None" = None) -> None:
        super().__init__(key, retry_after)
        self.key = key
        self.retry_after = retry_after
        if decision is not None:
            self.decision = decision

    def __str__(self) -> str:
        when = f"retry after {self.retry_after:.3f} s" if self.retry_after < math.inf else "no later call will fit"
        return f"{shown(self.key)} is over its quota; {when}"


class Unfit(RateLimited):
    """A reservation asked for more tokens than its key can ever admit at once: the caller asks for less.

    Nothing was charged. `retry_after` is inf: to wait does not help.

    Attributes:
        cost: the estimate that does not fit, in tokens.
        largest: the most that does, which is the burst.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.errors import Unfit
        >>> limiter = RateLimiter.from_url("memory://", {"model:rpm": "500/minute", "model:tpm": "100_000/minute"})
        >>> try:
        ...     limiter.reserve({"model:rpm": 1, "model:tpm": 128_000})
        ... except Unfit as answer:
        ...     print(f"at most {answer.largest} tokens of {answer.key}")
        at most 100000 tokens of model:tpm
    """

    def __init__(self, key: str, cost: int, largest: int, decision: "Decision | None" = None) -> None:
        super().__init__(key, math.inf, decision)
        self.args = (key, cost, largest)  # for copies
        self.cost, self.largest = cost, largest

    def __str__(self) -> str:
        return f"{shown(self.cost)} tokens never fit a burst of {self.largest}: key {shown(self.key)}"


class ConcurrencyLimited(Retry, BatchLimitError):
    """The concurrency limiter refused a call, or cancelled one under way.

    Attributes:
        reason: Why:
            "limit": the limit is reached, and there was no queue or the caller did not want to wait;
            "partition": free places are kept for guaranteed shares of others, or the cap of its partition is reached;
            "queue_full": too many callers wait already;
            "queue_timeout": the caller waited in vain;
            "shed": the call was under way, and was cancelled;
            "unknown_partition": no share has its name, and Partitions have `unknown="refuse"`;
            "no_key": a web or gRPC request whose key could not be made.
        retry_after: Estimated seconds until there is room; None if nothing is known yet, or if waiting does not help.
        limit: The limit at that moment (calls).
        in_flight: How many calls were under way.
        detail: What the message says instead of these two counts (default "": the counts).
        key: The key that had no room; None from a limiter that has one limit for all calls.

    Example:
        >>> from batchlimit import ConcurrencyLimited, ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> limiter = ConcurrencyLimiter(Fixed(1))
        >>> with limiter.acquire():
        ...     try:
        ...         limiter.acquire()
        ...     except ConcurrencyLimited as refusal:
        ...         print(refusal, refusal.retry_after)
        refused (limit): 1 calls are under way, the limit is 1 None
        >>> limiter.close()
    """

    # Overload makes many: no dict, no keyword-only arguments, no text until somebody reads it.
    __slots__ = ("detail", "in_flight", "key", "limit", "reason", "retry_after")

    def __init__(
        self,
        reason: str,
        retry_after: float | None,
        limit: int,
        in_flight: int,
        detail: str = "",
        key: str | None = None,
    ) -> None:
        self.reason = reason
        self.retry_after = retry_after
        self.limit = limit
        self.in_flight = in_flight
        self.detail = detail
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes, keyword arguments and all."""
        return type(self), (self.reason, self.retry_after, self.limit, self.in_flight, self.detail, self.key)

    def __str__(self) -> str:
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3f} s"
        why = self.detail or f"{self.in_flight} calls are under way, the limit is {self.limit}"
        whose = "" if self.key is None else f" at {shown(self.key)}"
        return f"refused ({self.reason}){whose}: {why}{when}"


class PermitLost(BatchLimitError):
    """The permit of a shared limit is lost: its lease could not be renewed, and the store may lend its slot to others.

    The call that held it has to stop: what it does from now on may overlap with the next holder.

    Attributes:
        key: The key of the permit.
        token: The token of the permit.

    Example:
        >>> from batchlimit.errors import PermitLost
        >>> print(PermitLost("gpu", 7))
        the permit 7 of 'gpu' is lost: stop, because its place may be another's by now
    """

    def __init__(self, key: str, token: int) -> None:
        super().__init__(key, token)
        self.key = key
        self.token = token

    def __str__(self) -> str:
        return f"the permit {self.token} of {shown(self.key)} is lost: stop, because its place may be another's by now"


class StoreUnavailable(BatchLimitError):
    """The store did not answer in time, or answered with an error: it can serve no key of this part of it now.

    The message has the store's address, what went wrong and what may help; never a password.

    Attributes:
        key: the key of the call that failed; None if the call was not for one key.
        address: where the store is, without a password; None if nobody knew.
        code: what went wrong, in a word. It is the server's own error code where the server gave one, such as
            "READONLY", "OOM" or "NOAUTH" (docs/redis.md lists them), else one of these:
            "REFUSED": nobody listens at the address;
            "UNREACHABLE": the name is unknown, or there is no way to the address;
            "TIMEOUT": there was no connection, or no answer, in time;
            "LOST": the connection ended before the answer came;
            "TLS": the two could not agree on TLS;
            "PROTOCOL": what answers there is no Redis;
            "NOPRIMARY": the sentinels know of no primary;
            "EMBEDDED": the server of embedded:// does not start;
            "FORMAT": another release of batchlimit wrote the bucket, and this one cannot read it;
            "DAMAGED": what lies at the bucket's name is no bucket;
            "ERR": the server gave an error that has no code of its own;
            "OTHER" (default): anything else, such as an error of a store of your own.
            While the circuit breaker is open it is the code of the last failure.

    Example:
        >>> from batchlimit import RateLimiter, StoreUnavailable
        >>> limiter = RateLimiter.from_url("redis://localhost:1", "100/s")
        >>> try:
        ...     limiter.acquire("ann")
        ... except StoreUnavailable as failure:
        ...     failure.key, failure.address, failure.code
        ('ann', 'redis://localhost:1/0', 'REFUSED')
    """

    _is_final = False  # whether callers with time left need not wait for the next request

    def __init__(self, *args: object, key: str | None = None, address: str | None = None, code: str = "OTHER") -> None:
        super().__init__(*args)
        self.key = key
        self.address = address
        self.code = code


class BucketUnavailable(StoreUnavailable):
    """The store answers, but not for this key: something else lies at its name, or its bucket lies elsewhere."""

    _is_final = True


class RulesChanged(BatchLimitError):
    """Another operator changed the same override at the same moment: nothing of this change was made.

    Look at what is set now, and decide anew.

    Example:
        >>> from batchlimit.admin import Admin
        >>> from batchlimit.errors import RulesChanged
        >>> from batchlimit.stores import MemoryStore
        >>> admin = Admin(MemoryStore())
        >>> try:
        ...     _ = admin.set("search:*", "20/s")
        ... except RulesChanged:
        ...     print(list(admin.overrides()))
    """


class LimiterClosed(BatchLimitError):
    """The limiter was closed: its tokens went back, and it admits nothing any more.

    Example:
        >>> from batchlimit import LimiterClosed, RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "1/hour")
        >>> limiter.close()
        >>> try:
        ...     limiter.try_acquire("ann")
        ... except LimiterClosed as error:
        ...     print(error)
        this limiter was closed
    """


class WatcherUnavailable(BatchLimitError, OSError):
    """This machine does not tell what the watcher would watch: it lacks the files, or hides them."""
