"""What callers of a key get while the store is away."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from batchlimit.base.key import by_name
from batchlimit.base.redaction import caution, shown
from batchlimit.base.setting import of_kind, whole
from batchlimit.errors import StoreUnavailable

Kind = Literal["closed", "open", "local"]


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What callers of a key get while the store is away.

    Pass it, or its kind as text, or a dict from keys and patterns to those, as `on_failure` to a limiter.

    Attributes:
        kind: "closed" refuses (default), "open" admits, "local" admits this instance's fair share of the quota.
        instances: limiter instances at the least, for "local" alone (default None: as many as the store last told).

    Raises:
        ValueError, TypeError: the kind is unknown, or `instances` is no whole number of at least 1.

    Example:
        >>> from batchlimit import FailurePolicy, RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "4800/s", on_failure=FailurePolicy.local(instances=48))
        >>> limiter.close()
    """

    kind: Kind = "closed"
    instances: int | None = None

    def __post_init__(self) -> None:
        """Say what is wrong, with its value."""
        if self.kind not in get_args(Kind):
            raise ValueError(f"a failure policy is 'closed', 'open' or 'local', not {shown(self.kind)}")
        if self.instances is None:
            return
        if self.kind != "local":
            raise ValueError(f"only a 'local' policy divides by instances, not {shown(self.kind)}")
        whole("instances", self.instances)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: "closed", "open", "local", or "local:48" for 48 instances.

        Args:
            text: the text.

        Returns:
            The policy.

        Raises:
            ValueError, TypeError: it is none.

        Example:
            >>> FailurePolicy.parse("local:48")
            FailurePolicy(kind='local', instances=48)
        """
        kind, _, instances = of_kind("the text of a failure policy", text, str, "a str like 'local:48'").partition(":")
        if instances and not (instances.isascii() and instances.isdecimal()):
            raise ValueError(f"a local policy is 'local', or 'local:48' for 48 instances, not {shown(text)}")
        return cls(kind, int(instances) if instances else None)

    def __str__(self) -> str:
        return self.kind if self.instances is None else f"{self.kind}:{self.instances}"

    @classmethod
    def closed(cls) -> Self:
        """Refuse: `try_acquire` returns False, all other methods raise StoreUnavailable.

        Returns:
            The policy.
        """
        return cls("closed")

    @classmethod
    def open(cls) -> Self:
        """Admit everything.

        Returns:
            The policy.
        """
        return cls("open")

    @classmethod
    def local(cls, instances: int | None = None) -> Self:
        """Admit this instance's fair share: rate / instances and burst / instances.

        The store tells how many instances there are, but only of those that leased at nearly the same time. One that
        spends, at keys that are not in use, counts itself alone. The divisor is what it last told, or `instances` if
        that is more. If the store never told and `instances` is None, nothing is admitted: the whole limit on each
        instance is no limit. The limiter warns of that when it is made.

        Args:
            instances: limiter instances at the least (default None): 12 machines with 4 processes each are 48.

        Returns:
            The policy.

        Raises:
            ValueError, TypeError: `instances` is no whole number of at least 1.
        """
        return cls("local", instances)


class CircuitOpen(StoreUnavailable):
    """The store failed several times in a row: nothing was sent. Callers may treat it as any StoreUnavailable."""

    _is_final = True


CLOSED = FailurePolicy()
UNCOUNTED = (
    "on_failure='local' admits nothing in a process that has not learnt how many limiter instances share the limit: "
    "say how many there are, as in FailurePolicy.local(instances=4)"
)
"""What is said of a local policy without a number of instances: when it is given, and when it refuses."""
FailureSource = FailurePolicy | Kind | Mapping[str, FailurePolicy | Kind]


def failure_rule(source: FailureSource) -> Callable[[str], FailurePolicy]:
    """Return the function from a key to its policy; a mapping must have "*", else a typo would leave keys closed."""
    if isinstance(source, Mapping):
        find = by_name({name: _as_policy(value) for name, value in source.items()})
        if "*" not in source:
            raise ValueError(
                f"on_failure must say what holds for the keys that {list(source)} does not name: add '*': 'closed'"
            )
        return lambda key: find(key) or CLOSED
    policy = _as_policy(source)
    return lambda _key: policy


def warn_if_uncounted(source: FailureSource) -> None:
    """Warn of a local policy without a number of instances; `source` is one that `failure_rule` takes."""
    policies = source.values() if isinstance(source, Mapping) else (source,)
    if FailurePolicy.local() in map(_as_policy, policies):
        caution(UNCOUNTED)


def _as_policy(value: object) -> FailurePolicy:
    if isinstance(value, FailurePolicy):
        return value
    if isinstance(value, str):
        return FailurePolicy(value)  # type: ignore[arg-type]  # checked there
    raise TypeError(
        f"on_failure is 'closed', 'open', 'local', a FailurePolicy or a mapping to those, not {shown(value)}"
    )
