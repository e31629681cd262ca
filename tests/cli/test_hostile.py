"""No command prints what a stranger chose so that a terminal obeys it: keys, names of instances, reasons, log lines."""

import json
from pathlib import Path

import pytest
import yaml

from batchlimit.base.redaction import escaped
from batchlimit.stores import RedisStore
from tests.cli.conftest import SLOW, TEN, Run
from tests.cli.terminal import Terminal
from tests.hostile import HOSTILE, obeyed
from tests.servers import Server

PRINTABLE = [each for each in HOSTILE if each.isprintable()]
"""Others can be no name of an override."""
FORMS = "table", "json", "yaml"


@pytest.fixture(autouse=True)
def strangers(run: Run, valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    """Buckets, instances, overrides and a log, all with names of strangers."""
    for each in HOSTILE:
        for instance in ("one", each.replace("\x00", "").replace(" ", "")):
            valkey_store.take(each, SLOW, TEN._replace(instance=instance))
    for each in PRINTABLE:
        assert run("set", each, "5/s", "--why", each).exit_code == 0
    with valkey.client() as client:
        for each in HOSTILE:
            told = {"revision": 1, "field": f"rule:{each}", "old": each, "new": each, "who": each, "why": each}
            client.xadd(f"{{{prefix}:}}log", told)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "words",
    [("top", "--once", "--interval", "0.1"), ("rules",), ("log",), ("set", "*", "1/s", "--dry-run")],
    ids=" ".join,
)
def test_what_is_listed_is_escaped_and_nothing_is_lost(run: Run, words: tuple[str, ...], form: str) -> None:
    done = run(*words, "-o", form)
    assert (done.exit_code, obeyed(done.output)) == (0, set())
    sent = {"rules": PRINTABLE, "set": HOSTILE[:3]}.get(words[0], HOSTILE)
    if form == "table":
        assert [each for each in sent if escaped(each) not in done.stdout] == []
    else:
        told = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
        assert [each for each in sent if each not in texts(told)] == []


def texts(told: object) -> set[object]:
    if isinstance(told, dict | list):
        return {text for each in (told.values() if isinstance(told, dict) else told) for text in texts(each)}
    return {told}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", [("get",), ("set", "--dry-run"), ("rules", "--explain")], ids=" ".join)
def test_what_is_told_of_one_key_is_escaped(run: Run, words: tuple[str, ...], form: str) -> None:
    for key in HOSTILE:
        quota = ["7/s"] if words[0] == "set" else []
        line = [words[0], key, *quota, *words[1:]] if words[-1] != "--explain" else [*words, key]
        done = run(*line, "-o", form)
        assert obeyed(done.output) == set(), key
        assert done.exit_code == (2 if words[0] == "set" and key not in PRINTABLE else 0)
        if form == "table" and done.exit_code == 0:
            assert escaped(key) in done.stdout


@pytest.mark.parametrize(
    ("command", "more"), [("refill", []), ("clear", []), ("unset", []), ("open", []), ("hold", ["1h"])]
)
def test_what_is_asked_and_done_or_refused_is_told_escaped(run: Run, command: str, more: list[str]) -> None:
    done = [run(command, key, *more, typed_in="y\n") for key in HOSTILE]
    assert [obeyed(each.output) for each in done] == [set()] * len(HOSTILE)
    assert {each.exit_code for each in done} == {0, 2}


def test_a_damaged_store_is_told_of_escaped(run: Run, valkey: Server, prefix: str) -> None:
    with valkey.client() as client:
        client.hset(f"{{{prefix}:}}rules", "rule:x", "".join(HOSTILE))
        client.hset(f"{{{prefix}:{HOSTILE[0]}}}", "level", "".join(HOSTILE))
        client.persist(f"{{{prefix}:{HOSTILE[1]}}}")
    for words in (("rules",), ("get", HOSTILE[0]), ("doctor", "--deadline", "100"), ("get", HOSTILE[1])):
        assert obeyed(run(*words).output) == set()


@pytest.mark.parametrize("form", FORMS)
def test_what_a_log_says_is_told_escaped(run: Run, tmp_path: Path, form: str) -> None:
    rules, log = tmp_path / "rules.toml", tmp_path / "access.log"
    rules.write_text('[[rules]]\nname = "user"\nquota = "1/hour"\nkey = "user:{user}"\n')
    lines = [{"time": 1_800_000_000 + at, "path": "/", "user": each} for each in HOSTILE for at in range(3)]
    log.write_text("\n".join([*(json.dumps(each) for each in lines), "{bad \x1b]0;owned\x07 \u202e"]))
    done = run("simulate", str(rules), str(log), "-o", form)
    assert (done.exit_code, obeyed(done.output)) == (0, set())


def test_a_screen_shows_strangers_escaped(environment: dict[str, str], valkey_store: RedisStore) -> None:
    sent = [each for each in HOSTILE if not each.isprintable()]
    with Terminal(environment, "top", "--interval", "0.1", "--sort", "key") as terminal:
        terminal.await_text("REFUSED/S")
        terminal.await_text(r"\x1b]0;owned\x07", r"\x9b31m")
        assert [each for each in sent if each in terminal.next_screen("q quit")] == []
        terminal.press("q")
        assert terminal.status() == 0
    with Terminal(environment, "get", HOSTILE[3].replace("\x00", ""), "--watch", "--interval", "0.1") as terminal:
        terminal.await_text(r"nuldel\x7f")
        terminal.press("q")
    with Terminal(environment, "get", HOSTILE[0], "--watch", "--interval", "0.1") as terminal:
        terminal.await_text("by 2 instances", r"\x1b]0;owned\x07")
        assert [each for each in sent if each in terminal.next_screen("q quit")] == []
        terminal.press("q")
        assert terminal.status() == 0
