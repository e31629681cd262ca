"""SharedPermit: permission for one call to be under way in the fleet, held by a thread."""

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Self

from batchlimit.base.unique import Unique
from batchlimit.errors import PermitLost
from batchlimit.shared.lease import Place

if TYPE_CHECKING:
    from batchlimit.shared.engine import Engine


class BaseSharedPermit(Unique):
    """What the permits of threads and of tasks share.

    Attributes:
        key: The key.
    """

    __slots__ = ("__weakref__", "_is_lost", "_issuer", "_place", "key")
    _instead = "complete it where it was acquired, and acquire another one there"
    _place: Place | None

    def __init__(self, issuer: "Engine", key: str) -> None:
        self._place: Place | None = None
        self._is_lost: bool | None = None  # known when it is released
        self._issuer, self.key = issuer, key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.key!r}: {self._state}>"

    @property
    def _state(self) -> str:
        if self._place is None:
            return "not entered"
        return "lost" if self.lost else "held" if self._is_lost is None else "released"

    @property
    def token(self) -> int:
        """A number for writes to other systems, which are to refuse smaller ones than they have seen (fencing).

        It is larger than the token of every lease that was over before this one was granted. 0: the permit was given
        while the store was away, and nothing is promised.
        """
        return self._held.token

    @property
    def lost(self) -> bool:
        """Whether the slot may belong to somebody else by now; of a released permit: at its release."""
        if self._is_lost is None:
            return self._held.is_lost(self._issuer.clock())
        return self._is_lost

    def check(self) -> None:
        """Raise if this permit is lost; a long call is to call this before each step that others must not see twice.

        Raises:
            PermitLost: The permit is lost.
        """
        if self.lost:
            raise PermitLost(self.key, self.token)

    def release(self) -> None:
        """Give the permit back, from any thread. A second time it changes nothing."""
        place = self._held
        if self._is_lost is None:
            is_lost = place.is_lost(self._issuer.clock())
            self._issuer.leave(self.key, place)
            self._is_lost = is_lost  # last: who is interrupted before has not released it

    @property
    def _held(self) -> Place:
        if self._place is None:
            raise RuntimeError(f"{self!r} was not acquired: was it awaited?")
        return self._place

    def __del__(self) -> None:
        place = getattr(self, "_place", None)
        if place is not None and self._is_lost is None:
            self._issuer.abandon(self.key, place)
            warnings.warn(f"{self!r} was never released", ResourceWarning, stacklevel=2, source=self)


class SharedPermit(BaseSharedPermit):
    """Permission for one call to be under way in the fleet. The end of its `with` block releases it; so does `release`.

    Nobody can end a thread: a call that takes long has to `check` whether the permit is lost.

    Attributes:
        key: The key.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 64}) as limiter:
        ...     with limiter.acquire("gpu") as permit:
        ...         permit.check()
        ...         permit.lost
        False
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        if self._is_lost is not None:
            raise RuntimeError(f"{self!r} was released before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
