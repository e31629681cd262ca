"""What each key of a keyed concurrency limiter gets: a limit or a law, and a queue, by name or pattern."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws.fixed import Fixed
from batchlimit.concurrency.queue import NO_QUEUE, Queue
from batchlimit.patterns import by_name
from batchlimit.redaction import shown

MakeLaw = Callable[[], Law]


@dataclass(frozen=True, slots=True)
class Keyed:
    """The limit of each key that a pattern names.

    Args:
        limit: How many calls of one key may be under way (whole number, at least 1), or what makes the law of a key,
            such as `Knee` or `lambda: AIMD(minimum=1, timeout=5)`.
        queue: Where the calls of one key wait that find no room (default: nobody waits).
        shared: True if all keys of the pattern teach one law, whose limit each of them gets (default False: each key
            has a law of its own). It is for keys with too few calls to learn from. A key takes over the limit when one
            of its calls ends.

    Raises:
        TypeError: `limit` is neither a whole number nor callable, or `queue` no Queue.
        ValueError: `limit` is below 1.

    Example:
        >>> from batchlimit import Queue
        >>> from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
        >>> limiter = KeyedConcurrencyLimiter({"repo:*": Keyed(20, queue=Queue(50)), "*": 5})
        >>> with limiter.acquire("repo:42", timeout=0.1):
        ...     limiter.statistics().patterns["repo:*"].in_flight
        1
        >>> limiter.close()
    """

    limit: int | MakeLaw
    queue: Queue = NO_QUEUE
    shared: bool = False

    def __post_init__(self) -> None:
        _check(self.limit)
        if not isinstance(self.queue, Queue):
            raise TypeError(f"queue must be like Queue(100), not {self.queue!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """One entry of the limits.

    Attributes:
        name: The name or pattern.
        number: Where it stands among the limits. Several keys are acquired in this order.
        keyed: What each of its keys gets.
    """

    name: str
    number: int
    keyed: Keyed


def patterns(limits: Mapping[str, int | Keyed]) -> Callable[[str], Pattern]:
    """Return the function from a key to its pattern; it raises ValueError for a key without one.

    Raises:
        TypeError, ValueError: The limits cannot work.
    """
    if not isinstance(limits, Mapping):
        raise TypeError(f'limits must be like {{"repo:*": 20, "*": Keyed(5, queue=Queue(50))}}, not {shown(limits)}')
    if not limits:
        raise ValueError('limits need an entry; "*" stands for every key')
    find = by_name({name: Pattern(name, i, _keyed(name, each)) for i, (name, each) in enumerate(limits.items())})

    def pattern(key: str) -> Pattern:
        if (found := find(_checked_key(key))) is None:
            raise ValueError(f'no limit for key {shown(key)}; add a "*" entry for the keys that no other entry names')
        return found

    return pattern


def _check(limit: object) -> None:
    if callable(limit):
        return
    if isinstance(limit, bool) or not isinstance(limit, int):
        hint = ": give what makes one, since each key needs its own" if isinstance(limit, Law) else ""
        raise TypeError(f"the limit of a key is a whole number, or makes a law, not {shown(limit)}{hint}")
    Fixed(limit)


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a str, not {shown(key)}")
    if not key:
        raise ValueError("a key must not be empty: ''")
    return key


def _keyed(name: object, given: int | Keyed) -> Keyed:
    if isinstance(given, Keyed):
        return given
    try:
        return Keyed(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} (the limit of {shown(name)})") from None
