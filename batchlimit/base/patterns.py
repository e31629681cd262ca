"""What is set for keys by name or by pattern."""

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Any, TypeVar

from batchlimit.base.redaction import shown

T = TypeVar("T")


def by_name(names: Mapping[str, T]) -> Callable[[str], T | None]:
    """Return what a key is given: by its own name, then by the patterns in their order, then by "*"; or None."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a mapping by key has names of type str, not {shown(name)}")
        if not name:
            raise ValueError("'' names no key; \"*\" stands for every key")
    exact = dict(names)
    # sorted() is stable: the patterns keep their order and only "*", which would hide those after it, goes last.
    globs = sorted((name for name in exact if set(name) & set("*?[")), key=lambda name: name == "*")
    values = [exact.pop(name) for name in globs]
    # A group that is open around each pattern would be noted at each, which takes longer the more stand before it.
    matches = re.compile("|".join(f"{translate(name)}()" for name in globs)).match if globs else None

    def find(key: str) -> T | None:
        if key in exact:
            return exact[key]
        found = None if matches is None else matches(key)
        return values[found.lastindex - 1] if found and found.lastindex else None

    return find


def limits_by_name(limits: object, like: str, made: Callable[[str, int, Any], T]) -> Callable[[str], T]:
    """Return the function from a key to what is made of its limit: of the name, its place, and what was given."""
    if not isinstance(limits, Mapping):
        raise TypeError(f"limits must be like {like}, not {shown(limits)}")
    if not limits:
        raise ValueError('limits need an entry; "*" stands for every key')
    entries: dict[str, T] = {}
    for number, (name, given) in enumerate(limits.items()):
        try:
            entries[name] = made(name, number, given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} (the limit of {shown(name)})") from None
    find = by_name(entries)

    def limit(key: str) -> T:
        if not isinstance(key, str):
            raise TypeError(f"a key must be a str, not {shown(key)}")
        if not key:
            raise ValueError("a key must not be empty: ''")
        if (found := find(key)) is None:
            raise ValueError(f'no limit for key {shown(key)}; add a "*" entry for the keys that no other entry names')
        return found

    return limit
