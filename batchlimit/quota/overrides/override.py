"""One override: what holds for a key or a pattern, with an end and a reason, and its text in the store."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from batchlimit.base.key import by_name, check_key, stored
from batchlimit.base.redaction import shown
from batchlimit.base.setting import between, whole
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.grammar import LARGEST_WEIGHT
from batchlimit.quota.quota import Quota

Mode = Literal["enforce", "shadow", "open"]
"""What becomes of the decisions: they hold, they are counted and everything is admitted, or there are none."""
ModeSource = Mode | Mapping[str, Mode]


class KeyRule(NamedTuple):
    """What holds for one key: by the code, or by the overrides that are known."""

    quota: Quota  # what it may spend
    mode: Mode = "enforce"  # what becomes of the decisions
    trial: Quota | None = None  # another quota, of which it is only counted what it would refuse; None: there is none
    weight: int | None = None
    """Where tokens are short; None: as of the limiter."""
    on_failure: FailurePolicy | None = None
    """While the store is away; None: as of the limiter."""

    @property
    def is_plain(self) -> bool:
        """Whether the bucket decides, nothing else is counted, and the rest is as of the limiter."""
        return self.mode == "enforce" and self[2:] == (None, None, None)


def check_mode(mode: object) -> Mode:
    """Return the mode; ValueError unless it is one."""
    if mode not in get_args(Mode):
        raise ValueError(f"a mode is 'enforce', 'shadow' or 'open', not {shown(mode)}")
    return mode  # type: ignore[return-value]  # checked just now


def mode_rule(source: ModeSource) -> Callable[[str], Mode]:
    """Return the function from a key to its mode; keys that a mapping does not name are enforced."""
    if isinstance(source, Mapping):
        find = by_name({name: check_mode(mode) for name, mode in source.items()})
        return lambda key: find(key) or "enforce"
    mode = check_mode(source)
    return lambda _key: mode


LONGEST_NAME = 1024
"""Characters of a key or a pattern."""
LONGEST_TEXT = 1000
"""Characters of a reason, and of who gave it."""
FOR_ALL = "counts for every key that it matches and no more exact override matches"
"""What is said of the name of an override that `is_for_all`."""
_INSTEAD = "name a quota, such as 20/s, or another mode, weight or failure policy"
_FIELDS = ("quota", "mode", "weight", "on_failure", "until", "at", "why", "who", "covered")


class NotUnderstood(ValueError):
    """What stands in the store is damaged, or was written by a later version: nothing of it is used."""


class Lost(NotUnderstood):
    """The store has lost what was set in it: a removal would have left another revision."""


@dataclass(frozen=True, slots=True)
class Override:
    """What counts instead of the code, until it is removed or has ended.

    Args:
        name: a key, or a pattern of keys with `*`, `?` or `[`, case-sensitive; "*" is the default for all.
        quota: what each such key may spend; a rate of 0 refuses everything. None: what the code says.
        until: when it ends (seconds since 1970, by the server's clock; default None: never).
        at: when it was set (the same).
        why: the reason, for people (default "").
        who: who set it (default "").
        mode: "enforce" (default), "open": everything is admitted; or "shadow": decisions are counted, and everything is
            admitted. A shadow with a quota is a trial beside what counts: it only counts what it would refuse.
        weight: of each limiter instance at these keys (default None: as the code says).
        on_failure: while the store is away (default None: as the code says).
        covered: what counts under this name once it has ended: an override without an end (default None: nothing).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.quota.overrides.override import Override
        >>> print(Override("search:*", Quota.parse("20/s"), why="the index is slow"))
        search:* 20/s (the index is slow)
    """

    name: str
    quota: Quota | None
    until: float | None = None
    at: float = 0.0
    why: str = ""
    who: str = ""
    mode: Mode = "enforce"
    weight: int | None = None
    on_failure: FailurePolicy | None = None
    covered: "Override | None" = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_mode(self.mode)
        self._check_quota()
        if self.weight is not None:
            whole("weight", self.weight, most=LARGEST_WEIGHT)
        if self.on_failure is not None and not isinstance(self.on_failure, FailurePolicy):
            raise TypeError(f"on_failure must be a FailurePolicy, not {shown(self.on_failure)}")
        if self.is_trial and (self.weight, self.on_failure) != (None, None):
            raise ValueError("a trial changes nothing: it has neither weight nor on_failure")
        check_line("why", self.why)
        check_line("who", self.who)
        for instant in (self.at, self.at if self.until is None else self.until):
            between("an instant in seconds since 1970", instant, 0.0, math.inf, "[)")
        if self.covered is not None and (self.until is None or self.covered.until is not None):
            raise ValueError("what ends covers what does not, and nothing else is covered")

    def _check_quota(self) -> None:
        if self.quota is None:
            if (self.mode, self.weight, self.on_failure) == ("enforce", None, None):
                raise TypeError(f"nothing would change: {_INSTEAD}")
        elif self.mode == "open":
            raise ValueError(f"what admits everything has no quota: {shown(self.quota)}")
        elif not isinstance(self.quota, Quota):
            raise TypeError(f"an override needs a Quota, not {shown(self.quota)}")

    @property
    def is_pattern(self) -> bool:
        """Whether it is for all keys that match the name."""
        return is_pattern(self.name)

    @property
    def is_for_all(self) -> bool:
        """Whether it changes what holds for every key, or nearly: its name has no character of its own."""
        return "*" in self.name and not literals(self.name) and not self.is_trial

    @property
    def is_trial(self) -> bool:
        """Whether it is a trial, beside what counts."""
        return self.mode == "shadow" and self.quota is not None

    @property
    def is_hold(self) -> bool:
        """Whether nothing is admitted by it."""
        return self.mode == "enforce" and self.quota is not None and self.quota.denies_all

    def outlasts(self, other: "Override") -> bool:
        """Whether it ends later than another one."""
        return other.until is not None and (self.until is None or self.until > other.until)

    def has_ended(self, now: float) -> bool:
        """Whether it counts no more (seconds since 1970, by the server's clock)."""
        return self.until is not None and self.until <= now

    def counting(self, now: float) -> "Override | None":
        """Return what counts under this name: this one, or what it covers once it has ended."""
        return self.covered if self.has_ended(now) else self

    def covering(self, there: "Override | None") -> "Override":
        """Return this one as it is set where another one stands: one that ends covers one that does not."""
        lasting = there.covered if there is not None and there.until is not None else there
        if self.until is None or self.is_trial or lasting is None or lasting.is_trial:
            return self
        return replace(self, covered=lasting)

    @property
    def said(self) -> str:
        """What it says, in a word or a quota."""
        if self.is_trial:
            return f"trial of {self.quota}"
        mode = "" if self.mode == "enforce" else self.mode
        limit = mode if self.quota is None else str(self.quota)
        weight = "" if self.weight is None else f"weight {self.weight}"
        failure = "" if self.on_failure is None else f"on_failure {self.on_failure}"
        return ", ".join(filter(None, (limit, weight, failure)))

    def over(self, code: KeyRule) -> KeyRule:
        """Return what holds for a key for which the code has this rule."""
        if self.is_trial:
            return code._replace(trial=self.quota)
        mode = code.mode if self.quota is None and self.mode == "enforce" else self.mode
        weight, on_failure = self.weight or code.weight, self.on_failure or code.on_failure
        return KeyRule(self.quota or code.quota, mode, code.trial, weight, on_failure)

    def encode(self) -> str:
        """Return its text in the store, a line of JSON; first what it covers, as an `until` that old releases skip."""
        mode = None if self.mode == "enforce" else self.mode
        said: dict[str, Any] = {"quota": None if self.quota is None else str(self.quota), "mode": mode}
        said |= {"weight": self.weight, "on_failure": None if self.on_failure is None else str(self.on_failure)}
        said |= {"until": self.until, "at": self.at, "why": self.why, "who": self.who}
        text = json.dumps({each: said[each] for each in said if said[each] not in (None, "")}, ensure_ascii=False)
        return text if self.covered is None else f'{{"until": {self.covered.encode()}, {text[1:]}'

    @classmethod
    def decode(cls, name: str, text: str) -> "Override":
        """Read what `encode` wrote. Raises NotUnderstood."""
        try:
            return cls._made(name, json.loads(text, object_pairs_hook=_fields))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise NotUnderstood(f"the override of {shown(name)} cannot be read: {error}") from error

    @classmethod
    def _made(cls, name: str, said: object) -> "Override":
        if not isinstance(said, dict):
            raise TypeError(f"{shown(said)} is no object")
        if unknown := said.keys() - set(_FIELDS):
            raise ValueError(f"{', '.join(sorted(unknown))}: written by a later version of batchlimit?")
        said["quota"] = Quota.parse(said["quota"]) if "quota" in said else None
        if "on_failure" in said:
            said["on_failure"] = FailurePolicy.parse(said["on_failure"])
        if "covered" in said:
            said["covered"] = cls._made(name, said["covered"])
        return cls(**{**said, "name": name})

    def __str__(self) -> str:
        return f"{self.name} {self.said}{f' ({self.why})' if self.why else ''}"


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, with what is covered by its name: see `Override.encode`."""
    covered = [("covered", value) for name, value in pairs if name == "until" and isinstance(value, dict)]
    return dict(pairs + covered)


def is_pattern(name: str) -> bool:
    """Whether a name stands for many keys."""
    return bool(set(name) & set("*?["))


def literals(name: str) -> int:
    """Return how many characters of a pattern stand for themselves: the more, the more special it is."""
    return len(re.sub(r"\[.*?\]|[*?]", "", name))


def literal_start(name: str) -> str:
    """Return the characters of a name before its first wildcard."""
    return re.split(r"[*?\[]", name, maxsplit=1)[0]


def check_name(name: object) -> str:
    """Return the name of an override, as buckets are named by it; ValueError or TypeError if it can be none."""
    name = check_key(name)
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name of an override has at most {LONGEST_NAME} characters, not {len(name)}")
    if not name.isprintable():
        raise ValueError(f"the name of an override must be printable, not {shown(name)}")
    return name if is_pattern(name) else stored(name)


def check_line(what: str, text: object) -> None:
    """Raise ValueError unless a text is one line, and not too long."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT or not text.isprintable():
        raise ValueError(f"{what} must be one line of at most {LONGEST_TEXT} characters")
