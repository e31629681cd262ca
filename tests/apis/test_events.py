"""The list of events is what the code tells the log, no more and no less; keys are in no message unless asked for."""

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchlimit.admin import Admin
from batchlimit.errors import StoreUnavailable
from batchlimit.events import EVENTS, log_event, show_keys
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.sync.stage import Stage, until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Each call of `log_event` of the package, with the file."""
    for path in (ROOT / "batchlimit").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = any(
            isinstance(node, ast.ImportFrom) and node.module == "batchlimit.events" for node in ast.walk(tree)
        )
        for node in ast.walk(tree):
            if (
                imported
                and isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "log_event"
            ):
                yield path.name, node


def test_the_list_has_every_event_that_the_code_tells() -> None:
    told: dict[str, set[str]] = {}
    for file, call in calls():
        name = call.args[0]
        assert isinstance(name, ast.Constant), f"{file} does not name its event"
        fields = {str(each.arg) for each in call.keywords} - {"error", "level"}
        told.setdefault(str(name.value), set()).update(fields)
    assert told == {name: set(event.fields) for name, event in EVENTS.items()}


def test_nothing_else_writes_to_the_log() -> None:
    writing = re.compile(r"getLogger|logging\.(debug|info|warning|error|exception|log)\(")
    files = [path for path in (ROOT / "batchlimit").rglob("*.py") if writing.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in files] == ["events.py"]


def test_the_page_lists_every_event() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| ([A-Z]+) \| ([\w, ]*)\| (.+) \|$", PAGE, re.MULTILINE)
    assert [(name, level, fields.strip(), text) for name, level, fields, text in rows] == [
        (name, logging.getLevelName(event.level), ", ".join(event.fields), event.text) for name, event in EVENTS.items()
    ]


def test_a_record_has_the_event_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    error = ZeroDivisionError()
    log_event("key.unattended", "looking after %s failed", "a key", error=error, key="ann")
    (record,) = caplog.records
    told = vars(record)
    assert (record.name, record.funcName) == ("batchlimit", "test_a_record_has_the_event_and_its_fields")
    assert (told["batchlimit_event"], told["exc_info"][1]) == ("key.unattended", error)
    assert "batchlimit_key" not in told
    show_keys()
    try:
        log_event("key.unattended", "looking after %s failed", "a key", key="ann")
    finally:
        show_keys(False)
    assert vars(caplog.records[-1])["batchlimit_key"] == "ann"


def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends(api: Api, caplog: Any) -> None:
    def fail() -> None:
        raise StoreUnavailable("gone")

    stage = Stage()
    stage.address = "mine://"  # limiters of other tests may still see their stores come back
    limiter = api(stage, "1000/s")
    with caplog.at_level(logging.INFO, "batchlimit"):
        stage.before = stage.before_probe = fail
        for number in range(20):
            limiter.try_acquire(f"secret {number}")
        stage.before = stage.before_probe = lambda: None
        until(lambda: limiter.try_acquire("secret"))
    told = [vars(each) for each in caplog.records]
    mine = [each for each in told if each.get("batchlimit_address") == "mine://"]
    assert [each["batchlimit_event"] for each in mine] == ["store.away", "store.back"]
    assert mine[0]["message"] == "mine:// is away, on_failure decides until it is back: gone"
    assert mine[1]["message"].startswith("mine:// is back after ")
    assert "secret" not in caplog.text
    limiter.close()


def changes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The records of overrides that became known."""
    told = [vars(each) for each in caplog.records]
    return [each for each in told if each["batchlimit_event"] == "rules.changed"]


def test_new_overrides_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    from batchlimit import RateLimiter

    store = MemoryStore()
    with RateLimiter(store, "1000/s") as limiter, caplog.at_level(logging.INFO, "batchlimit"):
        limiter.try_acquire("ann")
        Admin(store).set("ann", "5/s")
        until(lambda: limiter.try_acquire("ann", 6) is False and bool(changes(caplog)))
        assert [each["batchlimit_overrides"] for each in changes(caplog)] == [1]
