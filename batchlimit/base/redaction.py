"""What a message shows of a value: no password of a misplaced URL, and nothing that a terminal obeys; and warnings."""

import math
import re
import sys
import warnings
from collections.abc import Mapping

_HIDDEN = "***"
_RULES = (
    # A URL of a store: nothing after its scheme. Where it has a slip, any part of it may be the password.
    (re.compile(r"\b((?:rediss?|valkeys?|unix)(?:\+\w+)?:)(?=/|.*@).*", re.IGNORECASE | re.DOTALL), rf"\1//{_HIDDEN}"),
    # Any other URL: neither the name nor the password of a user.
    (re.compile(r"//[^/?#@\s]*[:@].*@", re.DOTALL), f"//{_HIDDEN}@"),
    # What redis-py's clients show of themselves, and what a server repeats of a command that it does not know.
    (re.compile(r"(password['\"]?[=:]|with args beginning with:).*", re.IGNORECASE | re.DOTALL), rf"\1 {_HIDDEN}"),
)


def escaped(text: str) -> str:
    r"""Return one line that a terminal shows and does not obey: what is not printable stands there as repr writes it.

    Everything that a stranger may choose passes through here before it is printed: keys, reasons, names of instances.

    Example:
        >>> print(escaped("ann\x1b[2J\n"))
        ann\x1b[2J\n
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def redacted(text: str) -> str:
    """Return the text without what may be a password."""
    for pattern, shown in _RULES:
        text = pattern.sub(shown, text)
    return text


_MOST_DIGITS, _LONGEST = 18, 1000


def shown(value: object) -> str:
    """Return what a message says of a value: its repr, without what may be a password; what is long is cut."""
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:  # Python does not write numbers of 4,301 digits
        return f"about {'-' * (value < 0)}10^{math.log10(abs(value)):.0f}"
    text = repr(redacted(value)) if isinstance(value, str) else redacted(repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def misplaced(**arguments: object) -> ValueError | None:
    """Return the error for the URL of a store that stands in another argument; None: there is none.

    The caller lets go of its arguments before it raises this, because error reporters capture local variables.
    """
    for name, value in arguments.items():
        parts = value.values() if isinstance(value, Mapping) else [value]
        if any(isinstance(part, str) and redacted(part) != part for part in parts):
            return ValueError(
                f"`{name}` is {redacted(repr(value))}, the URL of a store: it is the first argument of from_url"
            )
    return None


def caution(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the user's code does that works, and is most likely not what is meant; it points at that line."""
    frame, depth = sys._getframe(), 1  # as `warnings` counts from here on
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("batchlimit."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
