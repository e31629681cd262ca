"""What is set for keys by name or by pattern."""

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import TypeVar

from batchlimit.base.redaction import shown

T = TypeVar("T")


def by_name(names: Mapping[str, T]) -> Callable[[str], T | None]:
    """Return what a key is given: by its own name, then by the patterns in their order, then by "*"; or None."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a mapping by key has names of type str, not {shown(name)}")
    exact = dict(names)
    # sorted() is stable: the patterns keep their order and only "*", which would hide those after it, goes last.
    globs = sorted((name for name in exact if set(name) & set("*?[")), key=lambda name: name == "*")
    patterns = [(re.compile(translate(name)).match, exact.pop(name)) for name in globs]

    def find(key: str) -> T | None:
        if key in exact:
            return exact[key]
        for matches, value in patterns:  # each miss comes here: `next` of a generator takes twice as long
            if matches(key):
                return value
        return None

    return find
