"""Warnings that point at the user's own line."""

import sys
import warnings


def caution(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the user's code does that works, and is most likely not what is meant."""
    warnings.warn(message, category, stacklevel=_depth())


def _depth() -> int:
    """How many frames up the user's own code is, as `warnings` counts them from our caller on."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("batchlimit."):
        frame, depth = frame.f_back, depth + 1
    return depth
