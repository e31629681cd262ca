"""What is compared: a limiter of this package or of another one, or the least that asks Redis at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, NamedTuple, TypeVar

Way = TypeVar("Way")

OURS = "batchlimit"
"""Ours as it comes; the names of its other forms begin with it."""
BOUND = f"{OURS}, bound"
"""With a handle that knows its key."""
BATCHED = f"{OURS}, batches of 1,000"
FLOOR = "an empty call"
"""The contender that does nothing: what the harness itself costs."""


class Terms(NamedTuple):
    """What a contender is to enforce, and for how many callers of one process. Can be sent to another process."""

    url: str
    key: str
    rate: int
    """Tokens/s; a window is one second long and holds as many."""
    burst: int
    callers: int
    """Threads or tasks: as many connections are of use."""


class Call(NamedTuple):
    """One decision: `function(*arguments)` says whether it is admitted."""

    function: Callable[..., bool]
    arguments: tuple[Any, ...] = ()


class AwaitedCall(NamedTuple):
    """The same for a task, which awaits the answer."""

    function: Callable[..., Awaitable[bool]]
    arguments: tuple[Any, ...] = ()


Line = Callable[[], Call]
"""Says to one thread what it calls; asked once by each."""
Opening = Callable[[Terms], AbstractContextManager[Line]]
Opened = Iterator[Line]
AwaitedLine = Callable[[], AwaitedCall]
AwaitedOpening = Callable[[Terms], AbstractAsyncContextManager[AwaitedLine]]
AwaitedOpened = AsyncIterator[AwaitedLine]


@dataclass(frozen=True, slots=True)
class Contender(Generic[Way]):
    """A limiter by its name. `rule` is what it promises, `asks` whether every decision asks the server.

    What it promises it does for each of so many `keys`, which its calls name in turn.
    """

    name: str
    package: str
    open: Way
    rule: str
    asks: bool = True
    keys: int = 1

    @property
    def version(self) -> str | None:
        """Of its package; None where that is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    @property
    def is_ours(self) -> bool:
        return self.name.startswith(OURS)

    @property
    def is_peer(self) -> bool:
        """Whether it is a library that limits by asking Redis: what ours is measured against."""
        return self.asks and not self.is_ours and self.package != "redis"
