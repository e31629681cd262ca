"""What holds for one key."""

from typing import Literal, NamedTuple

from batchlimit.quota.quota import Quota
from batchlimit.redaction import shown

Mode = Literal["enforce", "open"]
"""What becomes of the decisions: they hold, or everything is admitted without one."""
MODES = ("enforce", "open")


class KeyRule(NamedTuple):
    """What holds for one key: by the code, or by the overrides that are known.

    Attributes:
        quota: what it may spend.
        mode: whether that holds.
    """

    quota: Quota
    mode: Mode = "enforce"


def check_mode(mode: object) -> None:
    """Raise ValueError unless this is a mode."""
    if mode not in MODES:
        raise ValueError(f"a mode is {' or '.join(map(repr, MODES))}, not {shown(mode)}")
