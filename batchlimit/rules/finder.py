"""What lets a request off, and what is remembered of requests.

A rule matches every spelling of a path, so that no client gets around it. What lets a request off is the other way
round: no client may choose a spelling of its path that is exempt, and that the application reads as another path.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import NamedTuple, TypeVar

from batchlimit.base.redaction import shown
from batchlimit.rules.matcher import is_odd
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Request
from batchlimit.rules.rule import RulesError

Exempts = Callable[[Request], bool]
Exempt = str | Exempts | Sequence[str | Exempts]


class Exactly(NamedTuple):
    """A pattern that matches what it says, and no other spelling of it: case and the last slash count."""

    text: str  # as it was written
    pattern: Pattern  # what it is read as; only its methods count here
    form: re.Pattern[str]  # what matches the path

    @classmethod
    def parse(cls, text: str) -> "Exactly":
        """Read a pattern. Raises ValueError or TypeError for one that can never match."""
        pattern = Pattern.parse(text)
        path = text.split()[-1]
        above = path.removesuffix("*").removesuffix("/")
        fields = re.sub(r"/\\\{[^/]*?\\\}(?=/|$)", "/[^/]+", re.escape(above))
        return cls(text, pattern, re.compile(fields + ("(?:/.*)?" if pattern.rest else "/" * path.endswith("/"))))

    def matches(self, method: str, path: str, root: str = "") -> bool:
        """Whether it matches a path that can be read in one way only, as a whole or below where it is mounted."""
        if is_odd(path) or not self.pattern.takes(method):
            return False
        below = path.removeprefix(root.rstrip("/"))
        return self.form.fullmatch(path) is not None or (below[:1] == "/" and self.form.fullmatch(below) is not None)


class Exemption:
    """Requests that no rule is for, by patterns, and functions of the Request that return whether it is exempt."""

    __slots__ = ("_patterns", "functions", "given")

    def __init__(self, given: Exempt = ()) -> None:
        self.given = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        self.functions = tuple([each for each in self.given if callable(each)])
        for function in self.functions:
            if iscoroutinefunction(function):
                raise RulesError(
                    f"{shown(function)} is asynchronous: let identify ask, and exempt look", field="exempt"
                )
        try:
            self._patterns = [Exactly.parse(each) for each in self.given if not callable(each)]
        except (ValueError, TypeError) as error:
            raise RulesError(str(error), field="exempt") from error
        for each in self._patterns:
            each.pattern.warn(each.text)

    def by_path(self, method: str, path: str, root: str) -> bool:
        """Whether a pattern exempts requests."""
        return any(each.matches(method, path, root) for each in self._patterns)

    def why(self, request: Request) -> str:
        """Return what exempts a request, for people; "": nothing does."""
        method, path, _, _, root = request
        found = [f"{each.text} is exempt" for each in self._patterns if each.matches(method, path, root)]
        with suppress(Exception):  # the caller's log has what a function raises
            found += ["a function exempts it"] if self.by_functions(request) else []
        return "; ".join(found)

    def by_functions(self, request: Request) -> bool:
        """Whether a function exempts a request. Raises what it raises, and TypeError if it returns no bool."""
        for function in self.functions:
            told: object = function(request)
            if told is True:
                return True
            if told is not False and told is not None:
                raise TypeError(f"exempt returns True or False, not {type(told).__name__}")
        return False


T = TypeVar("T")
Asked = tuple[str, str, str]
"""Method, path and root of a request."""
_MOST = 1024
_LONGEST = 160
"""Characters of a request that is remembered."""


class Memory(dict[Asked, T]):
    """Looks up what matches a method, path and root. Long ones, and ever other ones, are not remembered for good.

    Nor is one that came once: where each path has another number, the garbage collector would look at all of them.
    """

    __slots__ = ("_find", "_once")

    def __init__(self, find: Callable[[str, str, str], T]) -> None:
        self._find = find
        self._once: set[int] = set()  # the hashes of requests that came once lately

    def __missing__(self, asked: Asked) -> T:
        """Find it, and remember it if it is short and came before."""
        found, name = self._find(*asked), hash(asked)
        if sum(map(len, asked)) > _LONGEST:
            return found
        came_before = name in self._once
        if len(kept := self if came_before else self._once) >= _MOST:
            kept.clear()
        if came_before:
            self._once.discard(name)
            self[asked] = found
        else:
            self._once.add(name)
        return found
