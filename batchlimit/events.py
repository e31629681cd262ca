"""The events that the log has: each has a name, and is written once for each change, not at each call."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from batchlimit.base.redaction import escaped, shown

_logger = logging.getLogger("batchlimit")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of event."""

    level: int  # of its messages, as of `logging`; a repetition may have a lower one
    text: str  # what it means, in one sentence
    # what a record of it has beside the event, each as an attribute with "batchlimit_" before its name
    fields: tuple[str, ...] = ()


_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

EVENTS: Mapping[str, LogEvent] = MappingProxyType(
    {
        "store.away": LogEvent(
            _WARNING, "A circuit opened: the store is away, and `on_failure` decides.", ("address", "part", "reason")
        ),
        "store.back": LogEvent(_WARNING, "The store answers again.", ("address", "part", "seconds")),
        "store.no_pushes": LogEvent(_INFO, "The store sends no pushes: whoever waits looks by itself.", ("reason",)),
        "rules.changed": LogEvent(
            _INFO, "Other overrides are known, and obeyed from now on.", ("revision", "overrides")
        ),
        "rules.unreadable": LogEvent(
            _ERROR, "The overrides in the store cannot be used; those known before are.", ("reason",)
        ),
        "rules.reloaded": LogEvent(_INFO, "A watched file of rules has changed, and is obeyed from now on.", ("path",)),
        "rules.refused": LogEvent(
            _ERROR, "A file of rules cannot be used, or not be read; what it said before is.", ("path", "reason")
        ),
        "tokens.late": LogEvent(
            _WARNING, "No background thread can be had: callers fetch for themselves.", ("reason",)
        ),
        "tokens.not_returned": LogEvent(
            _DEBUG, "Tokens were not given back; they expire in the store.", ("key", "reason")
        ),
        "tokens.not_refunded": LogEvent(
            _DEBUG, "Tokens of a reservation were not refunded.", ("key", "tokens", "reason")
        ),
        "key.unserved": LogEvent(
            _ERROR, "The store answers, but not for a key; once for each code.", ("key", "address", "code", "reason")
        ),
        "key.unattended": LogEvent(_ERROR, "Looking after a key failed, by a mistake of ours or of a sizer.", ("key",)),
        "limiter.not_closed": LogEvent(_ERROR, "A limiter could not be closed as it should.", ("key",)),
        "law.failed": LogEvent(_ERROR, "A law of a concurrency limiter raised; the limit stays.", ("law",)),
        "limit.listener_failed": LogEvent(_ERROR, "A function that listens to a concurrency limit raised."),
        "permit.callback_failed": LogEvent(
            _ERROR, "A function that `acquire_later` was to call raised; its permit is back."
        ),
        "classify.failed": LogEvent(_ERROR, "`classify` raised, or returned no Outcome; the call is ignored."),
        "watchers.off": LogEvent(_WARNING, "No thread can be had for the watchers: nobody watches.", ("reason",)),
        "watchers.seen": LogEvent(_DEBUG, "What the watchers saw in a round.", ("seen",)),
        "watchers.lost": LogEvent(_ERROR, "What the watchers saw could not be told to the limiter.", ("seen",)),
        "watcher.failed": LogEvent(_WARNING, "A watcher raised, which counts as nothing seen.", ("watcher", "reason")),
        "web.check": LogEvent(
            _WARNING, "A check found what leaves more unlimited than meant, such as `unmatched`.", ("check", "rule")
        ),
        "web.fault": LogEvent(_ERROR, "A function of the application raised, or the store is away; once a minute."),
        "web.no_permit_key": LogEvent(_ERROR, "A request is refused, for the key of its permit could not be made."),
        "web.not_charged": LogEvent(_DEBUG, "What a request had cost was not corrected.", ("rule", "reason")),
        "web.unreadable": LogEvent(_ERROR, "A gRPC request cannot be read."),
        "telemetry.unread": LogEvent(_ERROR, "The statistics of a source cannot be read.", ("limiter",)),
    }
)
"""All events by name."""


class _Keys:
    shown = False


def show_keys(on: bool = True) -> None:
    """Have messages name the keys that they are about; until then they say "a key".

    Args:
        on: whether they do (default True).

    Example:
        >>> show_keys()
        >>> named("ann")
        "'ann'"
        >>> show_keys(False)
        >>> named("ann")
        'a key'
    """
    _Keys.shown = on


def named(key: str) -> str:
    """Return how a message names a key."""
    return shown(key) if _Keys.shown else "a key"


class _Shown:
    """An argument of a message, as a log may show it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return escaped(str(self._value))

    def __repr__(self) -> str:
        return escaped(repr(self._value))


def log_event(
    event: str,
    message: str,
    *arguments: object,
    error: BaseException | None = None,
    level: int | None = None,
    **fields: object,
) -> None:
    """Write an event to the log of "batchlimit"; its field "key" is left out unless keys are shown."""
    level = EVENTS[event].level if level is None else level
    if _logger.isEnabledFor(level):
        extra: dict[str, object] = {"batchlimit_event": event}
        for name, value in fields.items():
            if name != "key" or _Keys.shown:
                extra[f"batchlimit_{name}"] = escaped(value) if isinstance(value, str) else value
        shown = [each if isinstance(each, int | float) else _Shown(each) for each in arguments]
        _logger.log(level, message, *shown, exc_info=error, extra=extra, stacklevel=2)
