"""What matches the paths that are asked for often, so that nobody walks to it again."""

from typing import TypeVar

from batchlimit.rules.matcher import Found, Matcher

T = TypeVar("T")
Asked = tuple[str, str, str]
"""Method, path and root of a request."""
_MOST = 1024
_LONGEST = 160
"""Characters of a request that is remembered."""


class Memory(dict[Asked, Found[T]]):
    """Looks up what matches a request: `memory[method, path, root]`.

    Long requests are not remembered. A client that asks for ever other ones has all of them forgotten: nothing grows.

    Args:
        matcher: finds what is not remembered.
    """

    __slots__ = ("_matcher",)

    def __init__(self, matcher: Matcher[T]) -> None:
        self._matcher = matcher

    def __missing__(self, asked: Asked) -> Found[T]:
        """Find it, and remember it if it is short."""
        found = self._matcher.find(*asked)
        if sum(map(len, asked)) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[asked] = found
        return found
