"""What a request leaves behind for the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from batchlimit.integrations.enforcement import Outcome


@contextmanager
def kept() -> Iterator[list[Outcome]]:
    """Collect nothing in this block; at its end the list has what is left of the requests that it made."""
    gc.collect()
    before, found = _all(), list[Outcome]()
    known = {id(each) for each in before}
    gc.disable()
    try:
        yield found
        found += [each for each in _all() if id(each) not in known]
    finally:
        gc.enable()


def _all() -> list[Outcome]:
    return [each for each in gc.get_objects() if type(each) is Outcome]
