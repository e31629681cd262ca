"""What a lock is to those who hold it and make none."""

from types import TracebackType
from typing import Protocol


class OwnLock(Protocol):
    """A lock that knows whether its thread is inside."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def acquire(self) -> bool: ...

    def release(self) -> None: ...

    def _is_owned(self) -> bool: ...
