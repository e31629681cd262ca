"""Permit: leave for one call to be under way in a thread."""

from types import TracebackType
from typing import Self

from batchlimit.doorway.passes import SUCCESS, Pass


class Permit(Pass):
    """A permit as the context of a `with` block. Nobody can end a thread: one that may be shed has to `check`."""

    __slots__ = ()

    def check(self) -> None:
        """ConcurrencyLimited if this call was told to give up: to be called now and then by one that is sheddable."""
        if self.shed:
            raise self.door.refusal("shed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shed and error is not None:
            self.ignore()
        self.door.leave(self, SUCCESS if error is None else self.door.classify(error))
