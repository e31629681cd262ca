"""Permit: leave for one call to be under way in a thread."""

from types import TracebackType
from typing import Self

from batchlimit.doorway.passes import OVER, Pass
from batchlimit.errors import ConcurrencyLimited


class Permit(Pass):
    """Leave for one call to be under way, held from `acquire` on; the end of its `with` block completes it.

    Nobody can end a thread: a call that is sheddable has to `check` whether it is to give up.
    """

    __slots__ = ()

    def check(self) -> None:
        """ConcurrencyLimited if this call was told to give up: to be called now and then by one that is sheddable."""
        if self.shed:
            raise self.door.refusal("shed")

    def __enter__(self) -> Self:
        if self.state is OVER:
            raise RuntimeError(f"{self!r} was completed before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConcurrencyLimited) and error.reason == "shed" and self.shed:
            self.ignore()
        self.door.leave_by(self, error)
