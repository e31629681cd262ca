"""What an operator's wish changes: overrides as they are in, a Change out."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from batchlimit.base.redaction import shown
from batchlimit.quota.overrides.override import Override, check_name
from batchlimit.quota.overrides.overrides import MOST, Change, Overrides

Until = float | timedelta | datetime | str | None
"""How long an override counts: seconds, or a text such as "1h30m". Or until when: a datetime, or "2026-11-28T09:00Z".
None: for ever."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_said = attrgetter("quota", "mode", "weight", "on_failure", "until", "why")
"""Returns what an override says, but for who set it, and when."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])\s*")


def end_of(until: Until, now: float) -> float | None:
    """Return when something ends that begins now (seconds since 1970; None: never); ValueError: not after now."""
    if until is None:
        return None
    instant = until if isinstance(until, datetime) else None  # None: how long is meant
    if isinstance(until, str) and _DATE.match(until.strip()):
        try:
            instant = datetime.fromisoformat(until.strip())
        except ValueError as error:
            raise ValueError(f"{shown(until)} is no instant: write 2026-11-28T09:00Z") from error
    if instant is not None and instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone: write datetime(..., tzinfo=UTC), or 2026-11-28T09:00Z")
    end = now + _duration(until) if instant is None else instant.timestamp()
    if not now < end < datetime.max.replace(tzinfo=UTC).timestamp():
        raise ValueError(
            f"{shown(until)} is no time after now and before the year 10000: write how long it lasts, as 90s or 2d"
        )
    return round(end, 3)


class Difference(NamedTuple):
    """What `Admin.apply` changes, or would change.

    Attributes:
        set: overrides that are new, or other than before.
        removed: overrides that leave.
        before: what those of `set` replace, by name.
        unchanged: how many stand there already.

    Example:
        >>> from batchlimit.admin import Admin
        >>> from batchlimit.stores import MemoryStore
        >>> admin = Admin(MemoryStore())
        >>> [str(each) for each in admin.apply({"search:*": "20/s"}).set]
        ['search:* 20/s']
        >>> admin.apply({"search:*": "20/s"}).unchanged
        1
    """

    set: tuple[Override, ...]
    removed: tuple[Override, ...]
    before: Mapping[str, Override]
    unchanged: int


def difference(overrides: Overrides, wanted: Iterable[Override], now: float, *, prune: bool) -> Difference:
    """Return what is to change so that these stand there, and with `prune` no other."""
    by_name = {each.name: each for each in wanted}
    there = {each.name: one for each in overrides if (one := each.counting(now)) is not None}
    other = [each for each in by_name.values() if each.name not in there or _said(each) != _said(there[each.name])]
    removed = tuple(each for each in there.values() if prune and each.name not in by_name)
    before = {each.name: there[each.name] for each in other if each.name in there}
    made = [each.covering(overrides.by_name.get(each.name)) for each in other]
    return Difference(tuple(made), removed, before, len(by_name) - len(other))


def setting(overrides: Overrides, override: Override, who: str, now: float) -> Change:
    """Return the change that sets one override; see `applying`."""
    return applying(overrides, Difference((override,), (), {}, 0), who, override.why, now)


def applying(overrides: Overrides, change: Difference, who: str, why: str, now: float) -> Change:
    """Return a Change; overrides that have ended leave on the occasion, if there is one. Raises ValueError."""
    for each in change.set:
        there = counting(overrides, each.name, now)
        if each.is_trial and there is not None and not there.is_trial:
            raise ValueError(f"{there} is in force: remove it, or name the keys of the trial by another pattern")
    told = {each.name: "" for each in change.removed} | {each.name: each.encode() for each in change.set}
    texts = _without_ended(overrides, now) | told if told else {}
    left = len(overrides) + sum(name not in overrides.by_name if text else -1 for name, text in texts.items())
    if left > MOST:
        raise ValueError(f"there would be {left} overrides, and {MOST} are the most: remove some, or use patterns")
    return Change(overrides.revision, texts, who, why)


def counting(overrides: Overrides, name: str, now: float) -> Override | None:
    """Return what counts under a name; None: nothing."""
    there = overrides.by_name.get(name)
    return None if there is None else there.counting(now)


def removal(overrides: Overrides, names: list[str], who: str, why: str, now: float) -> Change:
    """Return the change that removes overrides; what they cover counts again. A store may have lost all, with names."""
    wanted, is_lost = sorted({check_name(name) for name in names}), not overrides.revision
    found = {name: counting(overrides, name, now) for name in wanted if is_lost or name in overrides.by_name}
    texts = _without_ended(overrides, now) | {name: _text(one and one.covered) for name, one in found.items()}
    return Change(overrides.revision, texts if found else {}, who, why)


def _without_ended(overrides: Overrides, now: float) -> dict[str, str]:
    return {each.name: _text(each.covered) for each in overrides if each.has_ended(now)}


def _text(override: Override | None) -> str:
    return "" if override is None else override.encode()


def _duration(until: object) -> float:
    if isinstance(until, timedelta):
        return until.total_seconds()
    if isinstance(until, str):
        parts = _PART.findall(until)
        if not parts or "".join(_PART.sub("", until).split()):
            raise ValueError(
                f"{shown(until)} is no duration: write 90s, 30m, 1h, 1h30m or 2d, or an instant as 2026-11-28T09:00Z"
            )
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if isinstance(until, bool) or not isinstance(until, int | float):
        raise TypeError(f"how long an override counts is in seconds, or a text such as '1h', not {shown(until)}")
    return float(until)
