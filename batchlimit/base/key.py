"""Keys: checks of them, of costs and prefixes, what stands for a long one, and what is set by name or by pattern."""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import partial
from hashlib import blake2b
from typing import Any, Never, TypeVar, overload

from batchlimit.base.redaction import shown
from batchlimit.base.setting import whole

T = TypeVar("T")

# Redis takes far longer names, but each is repeated in every request and in each of the bucket's fields.
LONGEST_KEY = 256

Costs = Mapping[str, int] | Iterable[tuple[str, int]]
"""Whole tokens by key, as a dict or as pairs."""

MOST_URGENT = 100
"""The highest priority of a caller; the lowest is 1."""
_SHOWN = 64
_DIGEST = 16
_SHORT = 2 * _DIGEST + 2
"""A key of fewer characters is never shortened: it looks like no shortened one, and has at most LONGEST_KEY bytes."""
# How a shortened key looks. A key that looks so from the start is shortened too: no key can pose as another one.
_SHORTENED = re.compile(rf".{{1,{_SHOWN}}}#[0-9a-f]{{32}}", re.DOTALL)


class NeverFits(ValueError):
    """A cost is above the burst of its key."""

    def __init__(self, key: str, cost: int, largest: int) -> None:
        super().__init__(f"{shown(cost)} tokens never fit a burst of {largest}: key {shown(key)}")
        self.key, self.cost, self.largest = key, cost, largest

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes; an error that cannot breaks the pool in which it is raised."""
        return type(self), (self.key, self.cost, self.largest)


def check_key(key: object) -> str:
    """The key itself: a non-empty str that UTF-8 can encode. Raises TypeError for another type, else ValueError."""
    if not isinstance(key, str):
        hint = "; decode it first" if isinstance(key, bytes | bytearray | memoryview) else ""
        hint = "; several go to `acquire_all`, if a limiter has it" if isinstance(key, list | tuple | set) else hint
        raise TypeError(f"a key must be a str, not {shown(key)}{hint}")
    if not key:
        raise ValueError("a key must not be empty: ''")
    return key if key.isascii() else _encodable("key", key)


def check_cost(cost: object, largest: int, key: str) -> int:
    """Return a cost from 0 to `largest`; TypeError: no int, ValueError: below 0, NeverFits (a ValueError): too much."""
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"cost must be a whole number of tokens, not {shown(cost)}")
    if cost < 0:
        raise ValueError(f"cost must be at least 0 tokens, not {shown(cost)}")
    if cost > largest:
        raise NeverFits(key, cost, largest)
    return cost


def check_priority(priority: object) -> int:
    """The priority itself. Raises TypeError unless it is an int, and ValueError unless it is from 1 to MOST_URGENT."""
    return whole("priority", priority, most=MOST_URGENT)


def check_costs(costs: object) -> dict[str, int]:
    """Return several keys, each with its cost; ValueError: a key is named twice. Whether costs fit is not checked."""
    if isinstance(costs, str | bytes) or not isinstance(costs, Mapping | Iterable):
        raise TypeError(f"several keys come as a mapping from key to cost, not as {shown(costs)}")
    found: dict[str, int] = {}
    for pair in costs.items() if isinstance(costs, Mapping) else costs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"several keys come as a mapping from key to cost, or as such pairs, not with {shown(pair)}"
            )
        key = check_key(pair[0])
        if key in found:
            raise ValueError(f"key {shown(key)} is named twice: add up its costs")
        found[key] = pair[1]
    return found


def check_prefix(prefix: object) -> str:
    """Return a prefix: not empty, without white space or braces, which would move the hash tag; else it raises."""
    if not isinstance(prefix, str):
        raise TypeError(f"a prefix must be a str, not {shown(prefix)}")
    if not prefix or any(letter in "{}" or letter.isspace() for letter in prefix):
        raise ValueError(f"a prefix must be non-empty, without braces or white space, not {shown(prefix)}")
    return _encodable("prefix", prefix)


class Stored(str):
    """What stands for a long key, in the store and in this process: no other key is equal that was `stored`."""

    __slots__ = ()


def stored(key: str) -> str:
    """Return a checked key; of one longer than LONGEST_KEY bytes its first 64 characters, "#" and its BLAKE2b-128."""
    if len(key) < _SHORT or isinstance(key, Stored):
        return key
    encoded = key.encode()
    if len(encoded) <= LONGEST_KEY and not _SHORTENED.fullmatch(key):
        return key
    return Stored(key[:_SHOWN] + "#" + blake2b(encoded, digest_size=_DIGEST).hexdigest())


def place_of(name: str) -> str:
    """Return the name under which a `stored` key is looked up in memory: an exact str, and no key of a caller.

    The name begins with a character that no checked key contains, because some look-ups come before the check. A caller
    who passes such a key all the same cannot know the hashes of this process.
    """
    return f"\udc00{hash(name)}:{name[-2 * _DIGEST :]}" if isinstance(name, Stored) else name


def names_of(key: str) -> tuple[str, str]:
    """Return a checked key as it is `stored`, and its `place_of`."""
    if len(key) < _SHORT:
        return key, key
    name = stored(key)
    return name, place_of(name)


def _encodable(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a {what} must be encodable as UTF-8, not {shown(text)}") from error
    return text


@overload
def by_name(names: Mapping[str, T]) -> Callable[[str], T | None]: ...
@overload
def by_name(names: Mapping[str, T], missing: Callable[[str], Never]) -> Callable[[str], T]: ...
def by_name(names: Mapping[str, T], missing: Callable[[str], Never] | None = None) -> Callable[[str], T | None]:
    """Return what a key is given: by its own name, then by the patterns in their order, then by "*".

    For a key that has none of these `missing` raises; without it, it is given None.
    """
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
        if matches is not None and (found := matches(key)) and found.lastindex:
            return values[found.lastindex - 1]
        return missing and missing(key)

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
    find = by_name(entries, partial(none_for, "limit"))

    def limit(key: str) -> T:
        if key.__class__ is not str or not key:
            check_key(key)  # it raises; a key that stays in this process need not be encodable
        return find(key)

    return limit


def none_for(what: str, key: str) -> Never:
    """Say that a mapping has nothing for a key."""
    raise ValueError(f'no {what} for key {shown(key)}; add a "*" entry for the keys that no other entry names')
