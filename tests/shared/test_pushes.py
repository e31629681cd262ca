"""The listener reads pushes, and subscribes again after its subscription was lost."""

import queue
import threading
from typing import Any

import pytest

from batchlimit.lending.messages import SlotPush
from batchlimit.shared import pushes as pushes_module
from batchlimit.shared.pushes import Listener

PUSH = SlotPush("a.1", 1, 2, -1)


class Scripted:
    """A subscription that does what a test says: opens or not, and reads pushes or fails."""

    def __init__(self, events: "queue.Queue[Any]", log: "queue.Queue[str]") -> None:
        self._events, self._log = events, log

    def open(self) -> None:
        self._log.put("open")
        if (event := self._events.get()) is not None:
            raise event

    def read(self, seconds: float) -> Any:
        event = self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        self._log.put("close")


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes_module, "_PAUSE", (0.0, 0.0))


@pytest.mark.usefixtures("no_pause")
def test_a_lost_subscription_is_made_again_and_everybody_looks_after_each() -> None:
    events: queue.Queue[Any] = queue.Queue()
    log: queue.Queue[str] = queue.Queue()
    end = threading.Event()

    def receive(name: str, push: SlotPush) -> None:
        assert push == PUSH
        log.put(name)
        if name == "last":
            listener.stop()
            end.set()

    listener = Listener(lambda: Scripted(events, log), receive, lambda: log.put("back"))
    refused, opened = ConnectionError("refused"), None
    for event in (refused, opened, ("first", PUSH), None, ConnectionError("lost"), opened, ("last", PUSH)):
        events.put(event)
    listener.start()
    assert end.wait(100)
    listener._thread.join(100)
    told = [log.get() for _ in range(log.qsize())]
    assert told == ["open", "close", "open", "back", "first", "close", "open", "back", "last", "close"]
