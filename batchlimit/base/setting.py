"""The settings of users: each check returns the value as it is kept, or raises an error that names it."""

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from batchlimit.base.redaction import shown

Called = TypeVar("Called", bound=Callable[..., object])

MOST = 2**31 - 1
"""Calls, or samples in a row: the originals of the laws count in 32 bits, and doubles hold each such number exactly."""

LONGEST_NS = 2**53
"""104 days: the longest duration of which doubles hold every nanosecond. Laws that reckon in doubles ignore
longer ones, and those of 0 or less. A clock too coarse to tell how long a call took says nothing of the load."""


def whole(name: str, value: object, least: float = 1, most: float = MOST) -> int:
    """Return a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {shown(value)}")
    if not least <= value <= most:
        bounds = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bounds}, not {shown(value)}")
    return value


def bounds(minimum: object, maximum: object) -> tuple[int, int]:
    """Return the least and the largest limit, in calls."""
    low, high = whole("minimum", minimum), whole("maximum", maximum)
    if low > high:
        raise ValueError(f"minimum must not be above maximum, but {low} > {high}")
    return low, high


def between(name: str, value: object, low: float, high: float, ends: str) -> float:
    """Return a number from `low` to `high`; a round bracket in `ends`, such as "[)", leaves out the end at its side."""
    number = _number(name, value)
    left_out = (ends[0] == "(" and number == low) or (ends[1] == ")" and number == high)
    if left_out or not low <= number <= high:
        least = f"{'above' if ends[0] == '(' else 'at least'} {low:g}"
        most = f" and {'below' if ends[1] == ')' else 'at most'} {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} must be {least}{most}, not {shown(value)}")
    return float(number)


def nanoseconds(name: str, seconds: object, least: float) -> int:
    """Return a duration of `least` seconds or more, and of 104 days at most, in whole nanoseconds."""
    number = _number(name, seconds)
    if not least <= number <= LONGEST_NS / 1e9:
        raise ValueError(f"{name} must be from {least:g} to {LONGEST_NS / 1e9:.0f} seconds, not {shown(seconds)}")
    return round(number * 1e9)


def by_limit(name: str, value: int | Callable[[int], float]) -> Callable[[int], float]:
    """Return a function of the limit in whole calls; a number of calls is the same for every limit."""
    if callable(value):
        return value
    same = whole(name, value, least=0)
    return lambda limit: same


def function(name: str, value: Called) -> Called:
    """Return a function whose answer nobody awaits."""
    functions(**{name: of_kind(name, value, Callable, "a function")})
    return value


def functions(*, may_await: bool = False, **given: object) -> None:
    """Raise TypeError unless each argument is a function or None, and none is asynchronous but where that `may` be."""
    for name, value in given.items():
        of_kind(name, value, Callable | None, "a function")
        if not may_await and is_asynchronous(value):
            raise TypeError(f"{name} must be a function that is not asynchronous, not {shown(value)}")


def is_asynchronous(function: object) -> bool:
    """Whether its calls are awaited: of a coroutine function, or of an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def several(name: str, given: Any, what: str) -> tuple[Any, ...]:
    """Return several things of an iterable that is no str."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be several {what}, such as a list, not {shown(given)}")
    return tuple(given)


def names(name: str, given: Any) -> tuple[str, ...]:
    """Return one name or several, each a str."""
    found = (given,) if isinstance(given, str) else several(name, given, "names")
    return tuple(of_kind(f"each of {name}", each, str, "a str") for each in found)


def of_kind(name: str, value: object, kind: Any, what: str) -> Any:
    """Return a value of a kind, or of several; `what` says which."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, not {shown(value)}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    # Compared, not converted: an int may be larger than any double.
    if not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} must be a finite number, not {shown(value)}")
    return value
