"""What there is once, and in one process only."""

from typing import ClassVar, NoReturn


class Unique:
    """Is neither pickled nor copied: a TypeError says what to do instead.

    Two of what holds tokens, a lock or a connection would spend, lock or read them each for itself.
    """

    __slots__ = ()
    _instead: ClassVar[str] = "make one in each process, from the same URL"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to its process, and is not pickled or copied: {self._instead}"
        )
