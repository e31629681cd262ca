"""Operators change quotas at a terminal, on a real server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from batchlimit import Quota, RateLimiter
from batchlimit.admin import Admin
from batchlimit.bucket.messages import Ask
from batchlimit.stores import RedisStore
from tests.apis.blocking import Blocking
from tests.cli.conftest import SLOW, TEN, Run, lease, typed_at
from tests.cli.test_exporter import told as metrics_of
from tests.depth import depth, only_deep
from tests.nodes import await_fact
from tests.servers import Server, Servers
from tests.sync.stage import until


def test_what_is_set_is_shown_logged_and_removed(run: Run, admin: Admin) -> None:
    done = run("set", "search:*", "20/s", "--until", "1h", "--why", "slow index", "--who", "ann")
    assert (done.exit_code, "20/s" in done.stdout, "slow index" in done.stdout) == (0, True, True)
    (override,) = admin.overrides()
    assert (override.name, str(override.quota), override.who, override.why) == ("search:*", "20/s", "ann", "slow index")
    assert override.until == pytest.approx(override.at + 3600.0, abs=0.01)
    assert "search:*" in run("rules").stdout
    assert run("unset", "search:*", "--why", "fast again").exit_code == 0
    assert list(admin.overrides()) == []
    shown = run("log").stdout.splitlines()
    assert ["fast again" in shown[1], "slow index" in shown[2]] == [True, True]


def test_programs_read_json_and_yaml(run: Run) -> None:
    run("set", "ann", "20/s")
    rows = json.loads(run("rules", "-o", "json").stdout)
    assert [(each["name"], each["quota"], each["until"]) for each in rows] == [("ann", "20/s", None)]
    assert yaml.safe_load(run("rules", "-o", "yaml").stdout) == rows
    (entry,) = json.loads(run("log", "-o", "json").stdout)
    assert (entry["name"], entry["old"], entry["new"]) == ("ann", None, "20/s")
    assert json.loads(run("set", "bob", "5/s", "-o", "json").stdout)["quota"] == "5/s"


def test_what_counts_for_a_key_is_explained(run: Run) -> None:
    run("set", "*", "100/s", "--yes")
    run("set", "search:*", "20/s")
    told = json.loads(run("rules", "--explain", "search:ann", "-o", "json").stdout)
    assert (told["counts"], told["name"], told["quota"]) == ("override", "search:*", "20/s")
    run("unset", "*")
    assert json.loads(run("rules", "--explain", "export", "-o", "json").stdout)["counts"] == "the code"
    nothing = run("rules", "--explain", "")
    assert (nothing.exit_code, "a key must not be empty" in nothing.stderr) == (2, True)


def test_a_trial_beside_what_counts_is_told_by_rules_and_get(run: Run) -> None:
    run("set", "search:*", "20/s")
    run("set", "search:ann", "3/s", "--shadow")
    told = json.loads(run("rules", "--explain", "search:ann", "-o", "json").stdout)
    assert (told["name"], told["quota"], told["trial"]) == ("search:*", "20/s", "search:ann trial of 3/s")
    assert json.loads(run("rules", "--explain", "search:bob", "-o", "json").stdout)["trial"] is None
    looked = json.loads(run("get", "search:ann", "-o", "json").stdout)
    assert looked["override"] == "search:* 20/s; search:ann trial of 3/s"


def test_a_change_without_a_change_says_what_to_name(run: Run) -> None:
    assert "name a quota, such as 20/s, or another mode, weight or failure policy" in run("set", "ann").stderr


@pytest.mark.parametrize(
    "words", ["set ann 20/s", "rules", "log", "get ann", "unset ann", "top --once", "exporter --once"]
)
def test_a_store_within_one_process_is_none_for_operators(run: Run, words: str) -> None:
    done = run(*words.split(), "--url", "memory://")
    assert (done.exit_code, "within one process" in done.stderr) == (2, True)


def test_a_dry_run_changes_nothing(run: Run, admin: Admin) -> None:
    done = run("set", "search:*", "20/s", "--dry-run")
    assert (done.exit_code, "would be set" in done.stderr) == (0, True)
    assert list(admin.overrides()) == []
    assert run("set", "search:*", "20/fortnight", "--dry-run").exit_code == 2


def used(store: RedisStore, *keys: str) -> None:
    for key in keys:
        assert store.take(key, SLOW, TEN).granted == 10


def test_a_dry_run_shows_the_live_buckets_that_would_obey(run: Run, admin: Admin, valkey_store: RedisStore) -> None:
    used(valkey_store, "search:ann", "search:bob", "search:vip", "export", "searching")
    admin.set("search:vip", "50/s")
    done = run("set", "search:*", "20/s", "--dry-run", "-o", "json")
    told = json.loads(done.stdout)
    assert [(each["key"], each["before"], each["after"]) for each in told["touches"]] == [
        ("search:ann", "100/100000s", "20/s"),
        ("search:bob", "100/100000s", "20/s"),
    ]
    assert told["warnings"] == ["calls of more than 20 tokens would be refused; up to 100 fit now"]
    table = run("set", "search:*", "20/s", "--dry-run")
    assert ["search:ann" in table.stdout, "2 live buckets would obey it" in table.stderr] == [True, True]
    assert [each.name for each in admin.overrides()] == ["search:vip"]


def test_a_dry_run_tells_of_a_name_that_nobody_uses(run: Run, valkey_store: RedisStore) -> None:
    used(valkey_store, "search:ann")
    for name, told in (("serach:*", "matches no live bucket"), ("search:anne", "has no live bucket")):
        done = run("set", name, "20/s", "--dry-run", "-o", "json")
        assert told in json.loads(done.stdout)["warnings"][0]
    trial = json.loads(run("set", "search:*", "20/s", "--shadow", "--dry-run", "-o", "json").stdout)
    assert [each["after"] for each in trial["touches"]] == ["trial of 20/s"]
    assert trial["warnings"] == []


@pytest.mark.parametrize("words", [("rules",), ("set", "ann", "5/s"), ("get", "ann")], ids=" ".join)
def test_what_is_wrong_with_the_overrides_is_not_said_of_a_bucket_alone(
    run: Run, valkey: Server, prefix: str, words: tuple[str, ...]
) -> None:
    with valkey.client() as client:
        client.set(f"{{{prefix}:}}rules", "text")
    done = run(*words)
    assert (done.exit_code, "that of the overrides (`batchlimit doctor` tells)" in done.stderr) == (3, True)


def test_all_are_removed_only_after_a_yes(run: Run, admin: Admin) -> None:
    run("set", "ann", "20/s")
    run("set", "bob", "20/s")
    assert run("unset", "--all", typed_in="n\n").exit_code == 1
    assert len(admin.overrides()) == 2
    assert run("unset", "--all", typed_in="y\n").exit_code == 0
    assert len(admin.overrides()) == 0
    run("set", "ann", "20/s")
    assert run("unset", "--all", "--yes").exit_code == 0
    assert len(admin.overrides()) == 0


@pytest.mark.parametrize(
    "words",
    [
        ("set", "*", "20/s"),
        ("set", "**", "0/s"),
        ("set", "?*", "--shadow"),
        ("set", "[!_]*", "--weight", "3"),
        ("set", "[a-z]*", "20/s"),
        ("hold", "*", "1m"),
        ("open", "*"),
    ],
    ids=" ".join,
)
def test_what_names_every_key_is_set_only_after_a_yes(run: Run, admin: Admin, words: tuple[str, ...]) -> None:
    refused = run(*words, typed_in="n\n")
    asked = f"{words[1]!r} counts for every key that it matches and no more exact override matches. Set it?"
    assert (refused.exit_code, len(admin.overrides()), asked in refused.stderr) == (1, 0, True)
    unanswered = run(*words)  # as where nobody is at a terminal
    assert (unanswered.exit_code, "nobody said yes; --yes says so" in unanswered.stderr) == (1, True)
    assert (run(*words, typed_in="y\n").exit_code, len(admin.overrides())) == (0, 1)
    assert run(*words, "--yes").exit_code == 0


@pytest.mark.parametrize("words", [("set", "*", "20/s", "--shadow"), ("set", "[ab]", "20/s"), ("set", "s*", "20/s")])
def test_a_trial_of_every_key_and_a_pattern_of_few_need_no_yes(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 0


def test_a_dry_run_shows_what_a_pattern_of_all_keys_would_touch(run: Run, admin: Admin, valkey_store: Any) -> None:
    used(valkey_store, "search:ann", "export")
    told = json.loads(run("set", "*", "20/s", "--dry-run", "-o", "json").stdout)
    assert [each["key"] for each in told["touches"]] == ["export", "search:ann"]
    assert told["warnings"][0] == "'*' counts for every key that it matches and no more exact override matches"
    assert list(admin.plan("*", "20/s").warnings) == told["warnings"]
    assert list(admin.overrides()) == []


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["unset", "never set"], 1),
        (["unset", "--all"], 1),
        (["unset"], 2),
        (["unset", "ann", "--all"], 2),
        (["set", "ann"], 2),
        (["set", "", "20/s"], 2),
        (["set", "ann", "20/fortnight"], 2),
        (["set", "ann", "20/s", "--until", "yesterday"], 2),
        (["set", "ann", "20/s", "--why", "two\nlines"], 2),
        (["rules", "--url", "nowhere://"], 2),
        (["rules", "--url", "redis://localhost:1/0"], 3),
        (["top", "--once", "--url", "redis://localhost:1/0"], 3),
        (["exporter", "--once", "-w", ""], 2),
        (["rules"], 0),
        (["log"], 0),
    ],
    ids=str,
)
def test_the_exit_status_says_what_went_wrong(run: Run, words: list[str], status: int) -> None:
    done = run(*words)
    assert done.exit_code == status
    assert "Traceback" not in done.output


def test_a_pipe_gets_no_colours_and_whole_rows(valkey: Server, prefix: str, admin: Admin) -> None:
    admin.set("search:*", "20/s", why="w" * 300)
    env = os.environ | {"BATCHLIMIT_URL": valkey.url, "BATCHLIMIT_PREFIX": prefix}
    line = [sys.executable, "-m", "batchlimit", "rules"]
    lines = subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2
    assert "w" * 300 in lines[1]
    assert "\x1b" not in "".join(lines)


def test_hold_admits_nothing_for_a_time_or_until_an_instant_of_the_servers_clock(run: Run, admin: Admin) -> None:
    assert run("hold", "search:*", "30s", "--why", "incident").exit_code == 0
    (override,) = admin.overrides()
    assert (override.said, override.why) == ("0/s", "incident")
    assert override.until == pytest.approx(override.at + 30.0, abs=0.01)
    assert run("hold", "search:*", "a while").exit_code == 2
    shorter = run("hold", "search:*", "10s")
    assert (shorter.exit_code, [*admin.overrides()]) == (1, [override])
    assert "not set: this hold ends later; unset or open lifts it" in shorter.stderr
    assert run("hold", "search:*", "60s").exit_code == 0
    instant = datetime.fromtimestamp(admin.clock() + 3600, UTC).replace(microsecond=0)
    assert run("hold", "search:*", f"{instant:%Y-%m-%dT%H:%M:%SZ}").exit_code == 0
    assert [each.until for each in admin.overrides()] == [instant.timestamp()]
    assert run("hold", "search:*", "2020-01-01T00:00Z").exit_code == 2


def test_what_a_hold_covers_is_told_and_counts_again(run: Run, admin: Admin) -> None:
    run("set", "ann", "600/hour", "--why", "vip")
    assert "set; before: ann 600/h (vip); once it has ended: ann 600/h (vip)" in run("hold", "ann", "1h").stderr
    assert json.loads(run("rules", "-o", "json").stdout)[0]["state"].endswith(" left, then 600/h")
    assert json.loads(run("rules", "--explain", "ann", "-o", "json").stdout)["state"].endswith(" left, then 600/h")
    assert json.loads(run("log", "-o", "json").stdout)[0]["new"].endswith(" UTC, then 600/h")
    done = run("unset", "ann")
    assert ("removed: ann" in done.stderr, "counts again: ann 600/h (vip)" in done.stderr) == (True, True)
    run("hold", "ann", "1h")
    assert (run("unset", "--all", "--yes").exit_code, [*admin.overrides()]) == (0, [])


def test_what_has_ended_is_not_told_as_if_it_counted(run: Run, admin: Admin) -> None:
    for why, told in (("abuse", "no override;"), ("again", "no override; ann 0/s (abuse) had ended;")):
        done = run("hold", "ann", "0.05s", "--why", why)
        assert f"set; before: {told}".rstrip(";") in done.stderr
        assert "once it has ended: another override that matches, or the code" in done.stderr
        (hold,) = admin.overrides()
        await_fact(lambda hold=hold: hold.has_ended(admin.clock()), "it ended")  # type: ignore[misc]
    run("set", "ann", "5/s")
    run("hold", "ann", "0.05s")
    (hold,) = admin.overrides()
    await_fact(lambda: hold.has_ended(admin.clock()), "it ended")
    assert json.loads(run("rules", "-o", "json").stdout)[0]["quota"] == "5/s"
    assert "set; before: ann 5/s; once" in run("hold", "ann", "1h").stderr


def test_open_admits_everything_for_a_time(run: Run, admin: Admin) -> None:
    assert run("open", "search:*", "--until", "1h", "--why", "incident").exit_code == 0
    (override,) = admin.overrides()
    assert (override.said, override.why) == ("open", "incident")
    assert override.until == pytest.approx(override.at + 3600.0, abs=0.01)
    assert json.loads(run("rules", "-o", "json").stdout)[0]["quota"] == "open"
    assert json.loads(run("log", "-o", "json").stdout)[0]["new"].startswith("open until ")
    assert run("open", "search:*", "--until", "a while").exit_code == 2


def test_a_quota_is_set_on_trial_and_all_are_put_in_shadow_mode(run: Run, admin: Admin) -> None:
    assert run("set", "search:*", "10/s", "--shadow", "--until", "1h").exit_code == 0
    assert run("set", "*", "--shadow", "--yes").exit_code == 0
    assert run("set", "*").exit_code == 2
    assert sorted(str(each) for each in admin.overrides()) == ["* shadow", "search:* trial of 10/s"]


def test_weight_and_failure_policy_are_set(run: Run, admin: Admin) -> None:
    assert run("set", "search:*", "--weight", "3", "--on-failure", "local:48", "--until", "1h").exit_code == 0
    (override,) = admin.overrides()
    assert override.said == "weight 3, on_failure local:48"
    for wrong in (["--weight", "0"], ["--on-failure", "sometimes"], ["10/s", "--shadow", "--weight", "2"]):
        assert run("set", "other", *wrong).exit_code == 2


@pytest.mark.parametrize(("command", "word"), [("refill", "refilled"), ("clear", "cleared")])
def test_a_bucket_is_filled_after_a_yes_and_logged(run: Run, valkey_store: RedisStore, command: str, word: str) -> None:
    assert run(command, "ann*", "--yes").exit_code == 2
    assert "there was none" in run(command, "never used", "--yes").stderr
    lease(valkey_store, "ann", Ask("one", 1, 60, 60, 60))
    assert run(command, "ann", typed_in="n\n").exit_code == 1
    done = run(command, "ann", "--why", "our mistake", "--who", "bob", typed_in="y\n")
    assert valkey_store.peek("ann", SLOW)[:2] == (40, 60), "what is leased is not filled"
    assert (done.exit_code, f"{word}: ann; it had 40.0" in done.stderr) == (0, True)
    row = json.loads(run("log", "-o", "json").stdout)[0]
    told = [row[each] for each in ("name", "who", "old", "new", "why")]
    assert told == ["ann", "bob", "40.0 tokens", word, "our mistake"]


def test_get_shows_a_pause_and_resume_ends_it(run: Run, valkey_store: RedisStore) -> None:
    valkey_store.pauses.pause("ann", Quota(1.0, 100), 3600, "429 of upstream")
    shown = json.loads(run("get", "ann", "-o", "json").stdout)
    assert 3500 < shown["paused_seconds"] <= 3600
    assert shown["paused_why"] == "429 of upstream"
    assert "429 of upstream" in run("get", "ann").stdout
    assert (run("resume", "ann").exit_code, run("resume", "ann").exit_code) == (0, 1)
    assert json.loads(run("get", "ann", "-o", "json").stdout)["paused_seconds"] == 0
    assert run("resume", "ann*").exit_code == 2
    assert run("log", "-o", "json").stdout.strip() == "[]"


def test_get_shows_a_bucket_and_who_leases_from_it(run: Run, valkey_store: RedisStore) -> None:
    lease(valkey_store, "search:ann", TEN._replace(revision=42))
    run("set", "search:*", "20/s")
    shown = json.loads(run("get", "search:ann", "-o", "json").stdout)
    assert (shown["quota"], shown["level"], shown["tokens"], shown["held"]) == ("100/100000s", 0.9, [90.0], 10)
    assert (shown["revision"], shown["override"]) == (42, "search:* 20/s")
    assert [(each["instance"], each["held"]) for each in shown["instances"]] == [("one", 10)]
    assert "one" in run("get", "search:ann").stdout
    assert json.loads(run("get", "never used", "-o", "json").stdout)["has_bucket"] is False
    assert "none: it is full" in run("get", "never used").stdout
    assert "a pattern is no key" in run("get", "search:*").stdout


_COMPLETED = [("batchlimit set search:* 20/s --dr", ["--dry-run"])]
_OTHERS = [("batchlimit un", ["unset"]), ("batchlimit zzz", [])]


@pytest.mark.parametrize(("typed", "expected"), [*_COMPLETED, *depth([], _OTHERS)])
def test_a_shell_completes_commands_and_options(typed: str, expected: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_BATCHLIMIT_COMPLETE": "complete_bash"}
    line = [sys.executable, "-m", "batchlimit"]
    done = subprocess.run(line, env=os.environ | words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


TOML = """[overrides]
"search:*" = "20/s"
"export:*" = {mode = "open", until = "1h", why = "an incident"}
"bo\\u001Bb" = "1/s"
"""
YAML = "overrides:\n  search:*: 20/s\n  export:*: {mode: open, why: an incident}\n"


def written(folder: Path, text: str, name: str = "live.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def names(admin: Admin) -> list[str]:
    return sorted(each.name for each in admin.overrides())


def test_a_file_is_set_in_one_change_and_its_difference_is_shown_before(run: Run, admin: Admin, tmp_path: Path) -> None:
    admin.apply({"search:*": "50/s", "left": "1/s"})
    file = written(tmp_path, YAML, "live.yaml")
    shown = run("rules", "apply", file, "--prune", "--dry-run", "-o", "json")
    assert json.loads(shown.stdout) == [
        {"name": "search:*", "before": "search:* 50/s", "after": "search:* 20/s"},
        {"name": "export:*", "before": None, "after": "export:* open (an incident)"},
        {"name": "left", "before": "left 1/s", "after": None},
    ]
    assert "2 would be set, 1 would be removed, 0 unchanged" in shown.stderr
    assert names(admin) == ["left", "search:*"]
    assert run("rules", "apply", file, "--prune").exit_code == 1, "nobody said yes"
    done = run("rules", "apply", file, "--prune", "--yes", "--who", "ann", "--why", "the file")
    assert (done.exit_code, "2 set, 1 removed" in done.stderr) == (0, True)
    assert {(each.name, each.who, each.why) for each in admin.overrides()} == {
        ("search:*", "ann", "the file"),
        ("export:*", "ann", "an incident"),
    }
    again = run("rules", "apply", file, "--why", "the file")
    assert (again.exit_code, "0 set, 0 removed, 2 unchanged" in again.stderr) == (0, True)


def test_a_difference_tells_until_when_each_counts(run: Run, admin: Admin, tmp_path: Path) -> None:
    admin.set("ann", "5/s", until="2099-01-01T00:00Z")
    file = written(tmp_path, '[overrides]\nann = {quota = "5/s", until = "2099-02-01T00:00Z"}')
    (row,) = json.loads(run("rules", "apply", file, "--dry-run", "-o", "json").stdout)
    assert row["before"] == "ann 5/s until 2099-01-01 00:00:00 UTC"
    assert row["after"] == "ann 5/s until 2099-02-01 00:00:00 UTC"


def test_what_holds_for_every_key_asks_first(run: Run, admin: Admin, tmp_path: Path) -> None:
    file = written(tmp_path, '[overrides]\n"*" = "20/s"')
    assert run("rules", "apply", file).exit_code == 1
    assert run("rules", "apply", file, typed_in="y\n").exit_code == 0
    assert names(admin) == ["*"]


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (TOML, "live.toml", r"'bo\x1bb'"),
        ('[overrides]\nann = "5/s"\nbob = "5/fortnight"', "live.toml", "live.toml:3:1: 'bob': quota"),
        (
            "overrides:\n  ann: 5/s\n  bob: {quota: 5/s, unti: 1h}",
            "live.yaml",
            "live.yaml:3:3: 'bob': an override has no field",
        ),
        ("[overrides]\nann = ", "live.toml", "live.toml:2: not TOML"),
        ("[limits]", "live.toml", "there is no table of overrides"),
        ("overrides: [", "live.yaml", "not YAML"),
        ("", "live.ini", "files named .toml, .yaml, .yml"),
    ],
)
def test_a_faulty_file_sets_nothing(run: Run, admin: Admin, tmp_path: Path, text: str, name: str, told: str) -> None:
    done = run("rules", "apply", written(tmp_path, text, name))
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
    assert names(admin) == []
    assert run("rules", "apply", str(tmp_path / "missing.toml")).exit_code == 2


@only_deep
def test_ten_thousand_are_set_at_once(run: Run, admin: Admin, tmp_path: Path) -> None:
    lines = "\n".join(f'"key:{number}" = "{number + 1}/s"' for number in range(10_000))
    assert run("rules", "apply", written(tmp_path, f"[overrides]\n{lines}")).exit_code == 0
    assert len(admin.overrides()) == 10_000
    assert len(admin.history(5_000)) < 2_000


# After the store has lost its overrides the commands say what processes obey, and `unset` ends it
KEY = "ann"
"""Is served all the time."""
Limiter = Any


class Site(NamedTuple):
    """A store, and a limiter of each API."""

    url: str
    prefix: str
    run: Run
    fleet: list[Limiter]

    def lose(self, names: str = "*") -> None:
        """Lose what FLUSHALL loses of this prefix, or a part: other tests use the server."""
        with Admin.from_url(self.url) as admin:
            for _, client in admin.store.primaries():
                for name in client.keys(f"{{{self.prefix}:{names}"):
                    client.delete(name)

    def overrides(self) -> tuple[str, str]:
        """The verdict of doctor, and what it found."""
        findings = json.loads(self.run("doctor", "-o", "json").stdout)
        (found,) = [each for each in findings if each["check"] == "overrides"]
        return found["verdict"], found["found"]


@pytest.fixture(params=["valkey", "cluster"])
def site(request: pytest.FixtureRequest, servers: Servers, prefix: str) -> Iterator[Site]:
    url = servers.get(request.param).url
    fleet = [each.from_url(url, "1000/s", prefix=prefix) for each in (RateLimiter, Blocking)]
    yield Site(url, prefix, typed_at(url, prefix), fleet)
    for each in fleet:
        each.close()


def asks(limiter: Limiter, fact: Callable[[Limiter], bool]) -> None:
    """Have it serve until something is so."""
    until(lambda: (limiter.try_acquire(KEY), fact(limiter))[1])


def obeys(said: str) -> Callable[[Limiter], bool]:
    return lambda limiter: str(limiter.rules.explain(KEY)).startswith(f"{KEY}: {said}")


@pytest.mark.parametrize(
    ("said", "setting", "ending"),
    [
        ("40/s", ["set", "*", "40/s"], ["unset", KEY]),
        ("0/s", ["set", "*", "0/s"], ["unset", "*"]),
        ("open", ["open", "*"], ["unset", "--all"]),
    ],
)
def test_lost_overrides_are_told_and_end_by_unset(site: Site, said: str, setting: list[str], ending: list[str]) -> None:
    run = site.run
    run(*setting, "--yes")
    for each in site.fleet:
        asks(each, obeys(said))
    site.lose()
    for each in site.fleet:
        asks(each, lambda limiter: limiter.rules.failures > 0)
    until(lambda: "the store has lost" in run("rules").stderr)
    (row,) = json.loads(run("rules", "-o", "json").stdout)
    assert (row["name"], row["quota"], row["state"]) == ("*", said, "lost")
    assert json.loads(run("rules", "--explain", KEY, "-o", "json").stdout)["state"] == "lost"
    assert json.loads(run("get", KEY, "-o", "json").stdout)["override"] == f"* {said}, which the store has lost"
    assert site.overrides() == ("fail", f"processes obey what the store has lost: * {said}")
    metrics = metrics_of(run("exporter", "--once").stdout)
    assert (metrics["overrides", "lost"], metrics["overrides", "quota"]) == (1, 0)
    assert all(map(obeys(said), site.fleet))
    ended = run(*ending)
    assert (ended.exit_code, f"ended, which the store had lost: * {said}" in ended.stderr) == (0, True)
    for each in site.fleet:
        asks(each, obeys("1000/s, by the code"))
    assert "lost" not in run("rules").stderr
    assert site.overrides()[0] == "ok"


def test_what_was_lost_before_is_not_told_after_a_second_loss(site: Site) -> None:
    threads = site.fleet[0]
    for said in ("40/s", "50/s"):
        site.run("set", "*", said, "--yes")
        asks(threads, obeys(said))
        site.lose("}rules")
        until(lambda said=said: (threads.try_acquire(KEY), f"* {said}" in site.overrides()[1])[1])  # type: ignore[misc]


def test_of_many_lost_overrides_some_are_named(site: Site) -> None:
    with Admin.from_url(site.url, prefix=site.prefix) as admin:
        admin.apply({f"search:{n}": "5/s" for n in range(8)})
    asks(site.fleet[0], lambda limiter: len(limiter.rules.overrides) == 8)
    site.lose()
    asks(site.fleet[0], lambda _: site.overrides()[1].endswith(" 5/s, 3 more"))


def test_unset_of_what_is_not_there_removes_nothing_else(run: Run, valkey: Server, prefix: str) -> None:
    run("set", "bob", "5/s")
    with Admin.from_url(valkey.url, prefix=prefix) as admin:
        before = admin.overrides()
        assert admin.unset(KEY) == ()
        assert ([*admin.overrides()], admin.overrides().revision) == ([*before], before.revision)
