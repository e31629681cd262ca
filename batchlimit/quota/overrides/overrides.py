"""All overrides at one revision, which of them counts for a key, and a change of them as the log tells of it."""

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import NamedTuple

from batchlimit.base.redaction import shown
from batchlimit.quota.overrides.override import KeyRule, NotUnderstood, Override, literal_start, literals


class Change(NamedTuple):
    """What is to change, all or nothing, if the overrides are still those that the operator saw."""

    revision: int  # the one that the operator saw; 0: there were none
    texts: Mapping[str, str]  # of each override that changes, by its name; "" removes it
    who: str = ""  # who changes it
    why: str = ""  # the reason


class Entry(NamedTuple):
    """One override that was changed, or one bucket that was filled.

    Attributes:
        at: when (seconds since 1970, by the server's clock).
        revision: of the overrides from then on; of a bucket it says nothing.
        name: the key or the pattern.
        old: what stood there before; "": nothing. Of a bucket: the tokens that it had.
        new: what stands there from then on; "": nothing. Of a bucket: "refilled" or "cleared".
        who: who changed it.
        why: the reason.
    """

    at: float
    revision: int
    name: str
    old: str
    new: str
    who: str
    why: str


MOST = 10_000
"""Overrides under one prefix."""
FORMAT = "1"
"""Of the hash, in its field `form`. A release that writes what this one would misread gives it another."""
RULE = "rule:"
"""A field of the hash is named by this and the name of its override."""
STEPS = 2**14
"""More than there are overrides that can end between two revisions: how many have is in an edition, beside it."""
_LARGEST = 2**38
"""A revision: with its steps it is a whole number that Lua holds exactly."""


_decoded = lru_cache(maxsize=2 * MOST)(Override.decode)
"""Reads an override. Of thousands a change leaves most as they were: those are not read again."""


class _Index:
    """Overrides of one kind, by name."""

    def __init__(self, each: Iterable[Override]) -> None:
        self._exact: dict[str, Override] = {}
        # Patterns by how they begin: their literals, and whether every key matches that begins so.
        self._by_start: dict[str, list[tuple[int, bool, Override]]] = {}
        for one in each:
            if one.is_pattern:
                start = literal_start(one.name)
                self._by_start.setdefault(start, []).append((literals(one.name), one.name == f"{start}*", one))
            else:
                self._exact[one.name] = one
        self._lengths = {len(start) for start in self._by_start}

    def find(self, key: str, now: float) -> Override | None:
        """Return the one that counts for a key."""
        exact = self._exact.get(key)
        if exact is not None and (counting := exact.counting(now)) is not None:
            return counting
        found = [
            (count, one.at, one.name, one)
            for length in self._lengths
            for count, is_start, pattern in self._by_start.get(key[:length], ())
            if is_start or fnmatchcase(key, pattern.name)
            if (one := pattern.counting(now)) is not None
        ]
        return max(found, key=lambda each: each[:3])[-1] if found else None


class Overrides:
    """What stood in the store at one revision. It never changes.

    An exact name counts before patterns. Of patterns the one with more characters that stand for themselves counts,
    then the one that was set later. An override that has ended counts as removed, and what it covers counts. Of trials,
    which are beside, another one counts by the same order.

    Args:
        revision: of the hash; 0: there is none.
        each: overrides, each with a name of its own.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.quota.overrides.override import Override
        >>> from batchlimit.quota.overrides.overrides import Overrides
        >>> overrides = Overrides(7, [Override("*", Quota(9.0)), Override("search:*", Quota(5.0), until=100.0)])
        >>> [overrides.find("search:ann", now).name for now in (99.0, 100.0)]
        ['search:*', '*']
    """

    def __init__(self, revision: int = 0, each: Iterable[Override] = ()) -> None:
        self.revision = revision
        self.by_name = {one.name: one for one in each}

    def __iter__(self) -> Iterator[Override]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def __repr__(self) -> str:
        return f"<Overrides at revision {self.revision}: {len(self)}>"

    @cached_property
    def _indexes(self) -> tuple[_Index, _Index]:
        """What counts, and the trials beside it."""
        return _Index(one for one in self if not one.is_trial), _Index(one for one in self if one.is_trial)

    @cached_property
    def _ends(self) -> list[float]:
        return sorted(one.until for one in self if one.until is not None)

    def changed(self, revision: int, texts: Mapping[str, str]) -> "Overrides":
        """Return what stands there after a Change with these texts."""
        new = {name: _decoded(name, text) for name, text in texts.items() if text}
        kept = {name: one for name, one in self.by_name.items() if name not in texts}
        return Overrides(revision, (kept | new).values())

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> "Overrides":
        """Return what a hash says; raises NotUnderstood. Nothing of a hash is used that is not understood whole."""
        if (written := fields.get("form")) != FORMAT:
            raise NotUnderstood(
                f"it is of format {shown(written)}, and this release reads {FORMAT!r}: see docs/upgrading.md"
            )
        revision = fields.get("revision", "")
        if not (is_number(revision) and 0 < int(revision) < _LARGEST):
            raise NotUnderstood(f"its revision is {shown(revision)}")
        names = [name for name in fields if name not in ("form", "revision")]
        if strange := [name for name in names if not name.startswith(RULE)]:
            raise NotUnderstood(f"it has a field {shown(strange[0])}")
        if len(names) > MOST:
            raise NotUnderstood(f"it has {len(names)} overrides, and {MOST} are the most")
        return cls(int(revision), [_decoded(name.removeprefix(RULE), fields[name]) for name in names])

    @property
    def fields(self) -> dict[str, str]:
        """A hash that says this: see `read`."""
        return {"form": FORMAT, "revision": str(self.revision)} | {RULE + one.name: one.encode() for one in self}

    def find(self, key: str, now: float) -> Override | None:
        """Return the override of a key, which is as `stored` returns it; None: its code counts."""
        return self._indexes[0].find(key, now)

    def trial(self, key: str, now: float) -> Override | None:
        """Return the trial beside it, by the same order."""
        return self._indexes[1].find(key, now)

    def edition(self, now: float) -> int:
        """Return a number that grows with each revision and each end; the instance with the larger one knows better."""
        return self.revision * STEPS + bisect.bisect_right(self._ends, now)

    def next_end(self, now: float) -> float:
        """Return when the next of them ends; inf: never."""
        at = bisect.bisect_right(self._ends, now)
        return self._ends[at] if at < len(self._ends) else math.inf


class InForce(NamedTuple):
    """The overrides as of one instant: for the same key it always has the same answer."""

    overrides: Overrides
    as_of: float
    edition: int
    offset: float
    """Of the server's clock, from that of the instance (seconds)."""

    @classmethod
    def at(cls, overrides: Overrides, now: float, offset: float = 0.0) -> "InForce":
        """Return what counts at an instant (seconds since 1970, by the server's clock)."""
        return cls(overrides, now, overrides.edition(now), offset)

    def rule(self, key: str, code: KeyRule) -> KeyRule:
        """Return what holds for a key, as `stored` returns it, for which the code has this rule."""
        if not self.overrides.by_name:
            return code
        found, trial = self.overrides.find(key, self.as_of), self.overrides.trial(key, self.as_of)
        rule = code if found is None else found.over(code)
        return rule if trial is None else trial.over(rule)

    def held_until(self, key: str, code: KeyRule) -> float:
        """Return when a key under holds, which may follow each other, may spend again (by our clock; inf: never)."""
        now = self.as_of
        while self._replace(as_of=now).rule(key, code).quota.denies_all:
            found = self.overrides.find(key, now)
            if found is None or found.until is None:
                return math.inf
            now = found.until
        return now - self.offset


NONE = InForce(Overrides(), 0.0, 0, 0.0)
"""What an instance begins with: nobody has set anything yet."""


def is_number(text: str) -> bool:
    """Whether a text is a whole number in the digits 0 to 9."""
    return text.isascii() and text.isdecimal()
