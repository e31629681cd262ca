"""What `check` says of files of rules, and what `diff` says that another one changes."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from batchlimit.cli.app import app
from batchlimit.rules import RuleFile, Rules, RulesError

GOOD = """
identities = ["ip"]
[limits]
"search:*" = "50/s"
"*" = {quota = "1000/s", on_failure = {kind = "local", instances = 4}, mode = "shadow"}
[[rules]]
name = "login"
quota = "5/minute"
key = "login:{ip}"
match = ["POST /login", "/items/{id}"]
charge = [401, "5xx"]
[[rules]]
name = "all"
quota = "100/s"
key = "all:{ip}"
cost = "by_size"
"""


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"NO_COLOR": "1"})


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return written(tmp_path / "good.toml", GOOD)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_that_works_has_no_problems(good: Path) -> None:
    done = typed("check", str(good))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "problems: 0, files: 1\n")


def test_the_first_problem_of_each_rule_and_limit_is_told_with_its_place(tmp_path: Path, good: Path) -> None:
    text = GOOD.replace("50/s", "50/z").replace("5/minute", "5/month").replace("cost =", "csot =")
    bad = written(tmp_path / "bad.toml", text)
    done = typed("check", str(good), str(bad))
    assert done.exit_code == 1
    assert [line.removeprefix(f"{bad}:") for line in done.stdout.splitlines()] == [
        "4:18: limit 'search:*': quota '50/z': expected a unit (s, m, h, d or w) at column 4: 'z'",
        "8:12: rule 'login': quota '5/month': expected a unit (s, m, h, d or w) at column 3: 'month'; write 5/30d",
        "16:1: rule 'all': a rule has no field 'csot': did you mean cost?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "row"),
    [
        ("all:{ip}", "all:{usr}", {"line": 15, "column": 7, "rule": "all", "field": "key"}),  # between rules
        ("all:{ip}", "login:{ip}", {"line": 15, "column": 7, "rule": "all", "field": "key"}),
        ('["ip"]', '"ip"', {"line": 2, "column": 14, "rule": None, "field": None}),
        ("[limits]", "[limits", {"line": 3, "column": 8, "rule": None, "field": None}),
        ("/items/{id}", "/items/<int:id>", {"line": 10, "column": 25, "rule": "login", "field": "match"}),
    ],
)
def test_programs_read_a_problem_as_json(tmp_path: Path, old: str, new: str, row: dict[str, Any]) -> None:
    bad = written(tmp_path / "bad.toml", GOOD.replace(old, new))
    done = typed("check", "-o", "json", str(bad))
    (found,) = json.loads(done.stdout)
    assert found.pop("problem")
    assert (done.exit_code, found) == (1, {"file": str(bad), **row})


def test_no_file_is_an_error_of_its_own(tmp_path: Path, good: Path) -> None:
    nowhere = str(tmp_path / "nowhere.toml")
    assert "problems" not in typed("check", nowhere).stderr
    assert [typed(*words).exit_code for words in (["check", nowhere], ["check"], ["diff", str(good), nowhere])] == [
        2
    ] * 3


def test_a_file_that_is_missing_hides_nothing_of_the_others(tmp_path: Path) -> None:
    first = written(tmp_path / "a.toml", GOOD.replace("all:{ip}", "all:{usr}"))
    last = written(tmp_path / "c.toml", GOOD)
    done = typed("check", str(first), str(tmp_path / "b.toml"), str(last), str(tmp_path / "d.toml"))
    assert (done.exit_code, done.stdout.count("a.toml")) == (2, 1)
    assert "problems: 1, files: 2" in done.stderr
    assert [name in done.stderr for name in ("b.toml", "c.toml", "d.toml")] == [True, False, True]


def test_a_difference_is_told_by_rule_limit_and_field(tmp_path: Path, good: Path) -> None:
    text = GOOD.replace("50/s", "60/s").replace('"by_size"', "2").replace('[401, "5xx"]', "[401]")
    other = written(tmp_path / "other.toml", text.replace('"login"', '"sign-in"'))
    done = typed("diff", "-o", "json", str(good), str(other))
    rows = [tuple(row.values()) for row in json.loads(done.stdout)]
    assert done.exit_code == 1
    assert [row for row in rows if row[1] not in ("login", "sign-in")] == [
        ("rule", "all", "cost", "by_size", "2"),
        ("limit", "search:*", "quota", "50/s", "60/s"),
    ]
    assert ("rule", "login", "charge", "401, 5xx", None) in rows
    assert ("rule", "sign-in", "charge", None, "401") in rows
    exempt = typed(
        "diff", "-o", "json", str(good), str(written(tmp_path / "exempt.toml", 'exempt = ["/x", "vip"]' + GOOD))
    )
    assert [tuple(row.values()) for row in json.loads(exempt.stdout)] == [
        ("exempt", "/x", "match", None, "/x"),
        ("exempt", "vip", "match", None, "vip"),
    ]
    same = typed("diff", str(good), str(good))
    assert (same.exit_code, same.stdout, same.stderr) == (0, "", "both say the same\n")


def test_a_file_names_the_identities_that_its_keys_may_have(tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.toml", GOOD.replace("all:{ip}", "all:{usr}").replace('"by_size"', "1"))
    with pytest.raises(RulesError, match=r"bad\.toml:15:7: rule 'all': \{usr\}"):
        RuleFile(bad)
    assert RuleFile(bad, identities=["ip", "usr"]).rules
    rules = bad.read_text().replace("[limits]", "").replace('"search:*"', "#").replace('"*" =', "#")
    with pytest.raises(RulesError, match=r"<text>:15:7: rule 'all': \{usr\}"):
        Rules.loads(rules, format="toml")


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("", "", True),
        ("charge =", "chagre =", False),
        ('mode = "shadow"', 'mode = "shade"', False),
        ('cost = "by_size"', 'replaces = ["login"]', True),
        ('cost = "by_size"', "replaces = 7", False),
        ('name = "all"', "", False),
        ('"by_size"', "-1", False),
        ("identities =", "identites =", False),
        ("identities =", "revision = 0\nidentities =", True),
        ("identities =", "revision = -1\nidentities =", False),
        ("identities =", f"revision = {2**53 - 1}\nidentities =", True),
        ("identities =", f"revision = {2**53}\nidentities =", False),
        ('"all"', f'"{"a" * 64}"', True),
        ('"all"', f'"{"a" * 65}"', False),
    ],
)
def test_editors_have_a_schema_of_what_a_file_may_say(old: str, new: str, fits: bool) -> None:
    schema = json.loads(typed("check", "--schema").stdout)
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(tomllib.loads(GOOD.replace(old, new))) is fits
