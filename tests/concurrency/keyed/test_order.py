"""In which order a caller acquires several keys, and what it holds where it waits, as a table."""

from types import SimpleNamespace
from typing import Any

from batchlimit.concurrency.keyed.permits import entering

KEYS = ["user", "repo", "all"]


def test_a_caller_waits_with_empty_hands_at_first_and_in_the_common_order_in_the_end() -> None:
    full: set[str] = set()

    def gate(key: str) -> Any:
        return SimpleNamespace(key=key, wait=lambda: 1.0 if key in full else 0.0)

    gates: Any = SimpleNamespace(by_key={key: gate(key) for key in KEYS}, clock=lambda: 7)
    held: list[Any] = []
    waiting = entering(gates, KEYS, 5.0, _permit, "", held)
    for key, waits_at, holding in [("all", "all", []), ("user", "user", []), ("repo", "repo", ["user"])]:
        full.clear()
        full.add(key)
        assert (next(waiting), [each.key for each in held]) == (waits_at, holding)
    full.clear()
    assert list(waiting) == []
    assert [(each.key, each.start_ns) for each in held] == [("user", 7), ("repo", 7), ("all", 7)]


def _permit(gate: Any) -> Any:
    return SimpleNamespace(
        key=gate.key, ignore=lambda: None, start_ns=0, _enter=lambda *_: gate.wait(), _wait=lambda *_: gate.key
    )
