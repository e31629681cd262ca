"""Whether the processes grow: threads, tasks, descriptors and memory, early and late in a long run."""

from collections.abc import Sequence

from tests.chaos.task import Usage

_LOOKS = 8
"""Of so many looks in a row the least counts: what is there for a moment, and gone, is no growth."""
_SPARE = {"threads": 0, "tasks": 0, "descriptors": 4, "memory": 8 << 20}
"""By how much each may differ all the same: a pool opens as many connections as callers happened to meet, and an
allocator keeps what it once had."""


def least(looks: Sequence[Usage]) -> Usage:
    """The least of each figure."""
    return Usage(*(min(getattr(look, name) for look in looks) for name in _SPARE))


def settled(looks: Sequence[Usage]) -> tuple[Usage, Usage, Usage]:
    """The first look, and the least of some in the middle and at the end."""
    middle = len(looks) // 2
    few = max(1, min(_LOOKS, middle // 2))
    return looks[0], least(looks[middle - few : middle] or looks[:1]), least(looks[-few:])


def growth(looks: Sequence[Usage]) -> list[str]:
    """What has grown from the middle to the end, in words: by then all there may be has been there once.

    Few looks tell nothing.
    """
    if len(looks) < 4 * _LOOKS:
        return []
    _, middle, end = settled(looks)
    return [
        f"{name}: {before:,} -> {after:,}"
        for name, spare in _SPARE.items()
        if (after := getattr(end, name)) > (before := getattr(middle, name)) + spare
    ]
