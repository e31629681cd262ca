"""What hits are held against: the least that a limiter does which counts exactly, timed in the same moments."""

import threading
from collections.abc import Callable, Iterator, Mapping
from timeit import Timer

_PLENTY = 10**12
TIMED = Callable[[int], float]
"""Does something so many times and returns how many seconds that took."""


class Floor:
    """A count of tokens behind a lock: a call locks, tests and subtracts. There is no lease, no refill and no clock."""

    __slots__ = ("_lock", "_tokens")

    def __init__(self, tokens: int) -> None:
        self._lock = threading.Lock()
        self._tokens = tokens

    def try_acquire(self, key: str) -> bool:
        """Take a token, if there is one."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
        return True


def timed(statement: str, **names: object) -> TIMED:
    """Time a statement as it would stand in a program, in a loop of its own: the interpreter specializes each loop."""
    return Timer(statement, globals=names).timeit


def floor() -> TIMED:
    """Time the floor's call, with tokens for longer than anybody measures."""
    return timed("floor.try_acquire('hot')", floor=Floor(_PLENTY))


def in_turn(contenders: Mapping[str, TIMED], rounds: int, calls: int) -> Iterator[dict[str, float]]:
    """Time so many calls of each, over and over: yields the nanoseconds a call by name, a round at a time.

    Each round begins with another of them, so that none always follows the same one.
    """
    names = list(contenders)
    for _ in range(rounds):
        names.append(names.pop(0))
        yield {name: 1e9 * contenders[name](calls) / calls for name in names}
