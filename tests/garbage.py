"""What a call leaves behind for the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def kept(kind: type[T]) -> Iterator[list[T]]:
    """Collect nothing in this block; at its end the list has all of this kind that is new and still there."""
    gc.collect()
    before, found = _all(kind), list[T]()
    known = {id(each) for each in before}
    gc.disable()
    try:
        yield found
        found += [each for each in _all(kind) if id(each) not in known]
    finally:
        gc.enable()


def _all(kind: type[T]) -> list[T]:
    return [each for each in gc.get_objects() if kind in type(each).__mro__]  # a look at `__class__` would wake a proxy
