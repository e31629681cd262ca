"""What holds for one key."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

from batchlimit.base.patterns import by_name
from batchlimit.base.redaction import shown
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.grammar import LARGEST_WEIGHT
from batchlimit.quota.quota import Quota

Mode = Literal["enforce", "shadow", "open"]
"""What becomes of the decisions: they hold, they are counted and everything is admitted, or there are none."""
ModeSource = Mode | Mapping[str, Mode]


class KeyRule(NamedTuple):
    """What holds for one key: by the code, or by the overrides that are known.

    Attributes:
        quota: what it may spend.
        mode: what becomes of the decisions.
        trial: another quota, of which it is only counted what it would refuse; None: there is none.
    """

    quota: Quota
    mode: Mode = "enforce"
    trial: Quota | None = None
    weight: int | None = None
    """Where tokens are short; None: as of the limiter."""
    on_failure: FailurePolicy | None = None
    """While the store is away; None: as of the limiter."""

    @property
    def is_plain(self) -> bool:
        """Whether the bucket decides, nothing else is counted, and the rest is as of the limiter."""
        return self.mode == "enforce" and self[2:] == (None, None, None)


def check_weight(weight: object) -> None:
    """Raise TypeError or ValueError unless this is a weight."""
    if isinstance(weight, bool) or not isinstance(weight, int):
        raise TypeError(f"weight must be a whole number, not {shown(weight)}")
    if not 1 <= weight <= LARGEST_WEIGHT:
        raise ValueError(f"weight must be from 1 to {LARGEST_WEIGHT}, not {shown(weight)}")


def check_mode(mode: object) -> Mode:
    """Return the mode; ValueError unless it is one."""
    if mode not in get_args(Mode):
        raise ValueError(f"a mode is 'enforce', 'shadow' or 'open', not {shown(mode)}")
    return mode  # type: ignore[return-value]  # checked just now


def mode_rule(source: ModeSource) -> Callable[[str], Mode]:
    """Return the function from a key to its mode: one for all keys, or one by name or pattern, as with quotas.

    Keys that a mapping does not name are enforced. Raises ValueError or TypeError.
    """
    if isinstance(source, Mapping):
        find = by_name({name: check_mode(mode) for name, mode in source.items()})
        return lambda key: find(key) or "enforce"
    mode = check_mode(source)
    return lambda _key: mode
