"""The watchers of single keys: what they see moves the limit of their key alone."""

import logging

from batchlimit.concurrency.keyed.gates import KeyedGates, KnownGate
from batchlimit.errors import WatcherUnavailable
from batchlimit.events import log_event


class KeyWatchers:
    """One watcher for the rounds, which polls those of all keys in turn. It sees nothing itself.

    What it saw too late for its round counts in the next one, unless that saw other things.
    """

    name = "keys"

    def __init__(self, gates: KeyedGates) -> None:
        self._gates = gates
        self._seen: dict[str, list[str]] = {}
        self._has_failed = False

    def poll(self) -> None:
        """Poll the watchers of each key."""
        seen = {known.key: self._seen_by(known) for known in self._gates.watched()}
        self._seen = {key: events for key, events in seen.items() if events}

    def end_period(self, events: tuple[str, ...]) -> None:
        """Tell the laws of all keys what was seen."""
        of_keys, self._seen = self._seen, {}
        self._gates.calibrate(events, of_keys)

    def _seen_by(self, known: KnownGate) -> list[str]:
        """Poll the watchers of one key, making them first if there are none yet; what fails has seen nothing."""
        try:
            if known.watchers is None and (make := known.pattern.keyed.watchers) is not None:
                known.watchers = tuple(make(known.key))
            return [event for each in known.watchers or () if (event := each.poll()) is not None]
        except WatcherUnavailable:  # there is no such group yet
            return []
        except Exception as error:  # noqa: BLE001  of one key: the others are to be polled all the same
            level, self._has_failed = logging.DEBUG if self._has_failed else logging.WARNING, True
            message = "a watcher of key %r failed, which counts as nothing seen: %r"
            log_event("watcher.failed", message, known.key, error, level=level, watcher=self.name, reason=repr(error))
            return []
