"""What programs read: each field of each command stands in the table of docs/how-to/command-line.md, and no other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchlimit.bucket.messages import Ask
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from tests.cli.conftest import Run
from tests.cli.test_watch import watching

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md"
RULE = '[[rules]]\nname = "login"\nquota = "5/minute"\nkey = "login:{ip}"\nmatch = "%s"\n'
LINE = '10.0.0.1 - - [22/Nov/2026:10:00:01 +0000] "POST /login HTTP/1.1" 401 9\n'
COMMANDS = {
    "get": "get ann",
    "top": "top --interval 0.1",
    "rules": "rules",
    "rules --explain": "rules --explain ann",
    "log": "log",
    "set": "set bob 5/s",
    "set --dry-run": "set ann 4/s --dry-run",
    "rules apply": "rules apply {folder}/overrides.toml --dry-run",
    "doctor": "doctor --deadline 30",
    "simulate": "simulate {folder}/rules.toml {folder}/access.log",
    "check": "check {folder}/wrong.toml",
    "diff": "diff {folder}/rules.toml {folder}/other.toml",
}


def documented() -> dict[str, set[str]]:
    table = PAGE.read_text().partition("| field | in | what |\n|---|---|---|\n")[2].partition("\n\n")[0]
    found: dict[str, set[str]] = {}
    for row in table.splitlines():
        names, places = row.split("|")[1:3]
        for place in places.strip().split(", "):
            found.setdefault(place, set()).update(re.findall(r"`(\w+)`", names))
    return found


def told(place: str, document: Any) -> Iterator[tuple[str, set[str]]]:
    """The fields of a document, and those of what is within: of several of a kind all that one of them has."""
    rows = document if isinstance(document, list) else [document]
    fields: dict[str, Any] = {}
    for row in rows:
        fields |= row
    yield place, set(fields)
    for name, value in fields.items():
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield from told(f"{place}: {name}", value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {
        "rules.toml": RULE % "/login",
        "other.toml": RULE % "/sign-in",
        "wrong.toml": RULE % "login",
        "access.log": LINE * 20,
        "overrides.toml": '[overrides]\nann = "3/s"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def used(run: Run, valkey_store: RedisStore) -> None:
    """A bucket of which somebody leases, and an override of its key."""
    run("set", "ann", "2/s burst 100")
    valkey_store.take("ann", Quota(0.001, 100), Ask("one", 1, 10, 10, 10))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("used")
def test_each_field_of_json_is_in_the_table_of_the_docs(command: str, run: Run, folder: Path) -> None:
    done = run(*COMMANDS[command].format(folder=folder).split(), "-o", "json")
    of_command = {place: names for place, names in documented().items() if place.partition(":")[0] == command}
    assert dict(told(command, json.loads(done.stdout))) == of_command, done.stderr


@pytest.mark.usefixtures("used")
def test_a_look_of_get_watch_has_more_fields(environment: dict[str, str]) -> None:
    with watching(environment, "-o", "json") as process:
        assert process.stdout is not None
        seen = set(json.loads(process.stdout.readline()))
    assert seen == documented()["get"] | documented()["get --watch"]


def test_the_table_names_no_other_command() -> None:
    assert {place.partition(":")[0] for place in documented()} == {*COMMANDS, "get --watch"}
