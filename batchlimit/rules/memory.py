"""What matches the paths that are asked for often, so that nobody walks to it again."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Asked = tuple[str, str, str]
"""Method, path and root of a request."""
_MOST = 1024
_LONGEST = 160
"""Characters of a request that is remembered."""


class Memory(dict[Asked, T]):
    """Looks up what matches a request: `memory[method, path, root]`.

    Long requests are not remembered. A client that asks for ever other ones has all of them forgotten: nothing grows.

    Args:
        find: a function of method, path and root that finds what is not remembered.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[str, str, str], T]) -> None:
        self._find = find

    def __missing__(self, asked: Asked) -> T:
        """Find it, and remember it if it is short."""
        found = self._find(*asked)
        if sum(map(len, asked)) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[asked] = found
        return found
