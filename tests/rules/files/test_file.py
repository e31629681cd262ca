"""A RuleFile: what it may say, and what is wrong with it."""

import pickle
from pathlib import Path

import pytest

from batchlimit import FailurePolicy, Quota
from batchlimit.quota.overrides.code import CodeLimit
from batchlimit.rules import RuleFile, Rules, RulesError
from batchlimit.rules.file import rules_of

BOTH = """
revision = 7

[[rules]]
name = "login"
quota = "5/minute"
key = "login:{ip}"
match = "POST /login"
on_failure = "open"

[limits]
"mails:*" = "10/s burst 20"
"*" = {quota = "1000/s", mode = "shadow", on_failure = {kind = "local", instances = 4}}
"""
YAML = """
revision: 7
rules:
  - {name: login, quota: 5/minute, key: "login:{ip}", match: POST /login, on_failure: open}
limits:
  "mails:*": 10/s burst 20
  "*": {quota: 1000/s, mode: shadow, on_failure: {kind: local, instances: 4}}
"""


class Follower:
    def obey(self, said: object) -> None:
        pass


def written(folder: Path, text: str, name: str = "limits.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "text"), [("limits.toml", BOTH), ("limits.yaml", YAML)])
def test_a_file_says_rules_of_requests_limits_of_keys_and_a_revision(tmp_path: Path, name: str, text: str) -> None:
    file = RuleFile(written(tmp_path, text, name))
    assert [rule.name for rule in file.rules] == ["login"]
    assert file.limits.revision == 7
    assert dict(file.limits.by_name) == {
        "login:*": CodeLimit(Quota.parse("5/minute"), FailurePolicy.open(), "enforce"),
        "mails:*": CodeLimit(Quota.parse("10/s burst 20")),
        "*": CodeLimit(Quota.parse("1000/s"), FailurePolicy.local(4), "shadow"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "limits.toml: there are no rules and no limits, so nothing is limited: add [[rules]]"),
        ("limits = 7", "limits.toml:1:10: limits are names or patterns of keys, each with its quota"),
        ('[limits]\n"*" = "10/minite"', "limits.toml:2:11: limit '*': quota '10/minite': expected a unit"),
        ('[limits]\n"*" = {quota = "10/minite"}', "limits.toml:2:20: limit '*': quota '10/minite': expected a unit"),
        ('[limits]\n"*" = 7', "limits.toml:2:7: limit '*': "),
        ('[limits]\na = {mode = "shadow"}', "limits.toml:2:5: limit 'a' has no quota"),
        ('[limits]\na = {quta = "1/s"}', "limits.toml:2:6: limit 'a' has no field 'quta': did you mean quota?"),
        ('[limits]\na = {quota = "1/s", mode = "open"}', "limit 'a': mode is 'enforce' or 'shadow', not 'open'"),
        ('[limits]\na = {quota = "1/s", on_failure = "opn"}', "a failure policy is 'closed', 'open' or 'local'"),
        ('[limits]\na = {quota = "1/s", on_failure = {kind = "opn"}}', "limit 'a': a failure policy is"),
        ('limts = {a = "1/s"}', "limits.toml: there are no rules and no limits"),
        ('revison = 7\n[limits]\na = "1/s"', "the file has no field 'revison': did you mean revision?"),
        ('revision = -1\n[limits]\na = "1/s"', "limits.toml:1:12: revision is a whole number from 0, not -1"),
        ('revision = 9007199254740992\n[limits]\na = "1/s"', "revision is a whole number from 0, not 9007199254740992"),
        ('exempt = [7]\n[limits]\na = "1/s"', "limits.toml:1:10: exempt is a list of patterns, not [7]"),
        ('exempt = "/x"\n[limits]\na = "1/s"', "exempt is a list of patterns, not '/x'"),
        ('revision = true\n[limits]\na = "1/s"', "revision is a whole number from 0, not True"),
        (BOTH + '"login:*" = "1/s"', "'login:*' is limited by a rule already"),
        (BOTH.replace("5/minute", "5/minite"), "rule 'login': quota '5/minite'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RulesError) as caught:
        RuleFile(written(tmp_path, text))
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RuleFile(tmp_path / "limits.toml")
    with pytest.raises(RulesError, match=r"\.toml"):
        RuleFile(written(tmp_path, BOTH, "limits.ini"))


@pytest.mark.parametrize(
    ("interval", "kind"), [(0.0, ValueError), (-1, ValueError), ("1s", TypeError), (1e9, ValueError)]
)
def test_an_interval_is_in_seconds(tmp_path: Path, interval: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="interval"):
        RuleFile(written(tmp_path, BOTH), interval=interval)  # type: ignore[arg-type]


def test_a_file_belongs_to_its_process(tmp_path: Path) -> None:
    file = RuleFile(written(tmp_path, BOTH))
    with pytest.raises(TypeError, match="from the same path"):
        pickle.dumps(file)
    assert repr(file) == f"<RuleFile {tmp_path / 'limits.toml'}>"


def test_a_revision_may_be_as_large_as_a_number_of_lua_is_exact(tmp_path: Path) -> None:
    text = BOTH.replace("revision = 7", f"revision = {2**53 - 1}")
    assert RuleFile(written(tmp_path, text)).said.limits.revision == 2**53 - 1


def test_who_was_interrupted_while_followers_are_told_tells_them_again_and_once(tmp_path: Path) -> None:
    heard = list[int]()

    class Interrupted:
        def obey(self, said: object) -> None:
            heard.append(len(heard))
            if len(heard) == 2:
                raise KeyboardInterrupt

    file, limiter = RuleFile(written(tmp_path, BOTH)), Interrupted()
    file.lead(limiter)
    file.look()
    assert len(heard) == 1
    written(tmp_path, BOTH.replace("revision = 7", "revision = 80"))
    with pytest.raises(KeyboardInterrupt):
        file.look()
    for _ in range(2):
        file.look()
        assert (len(heard), file.said.limits.revision) == (3, 80)


def test_a_file_that_was_closed_looks_no_more_nor_does_a_forked_child(tmp_path: Path) -> None:
    file, limiter = RuleFile(written(tmp_path, BOTH), watch=True), Follower()
    file.lead(limiter)
    file.close()
    file.after_fork()
    file.lead(limiter)
    assert file._thread is None


def test_a_file_without_rules_of_requests_is_none_for_the_web(tmp_path: Path) -> None:
    assert isinstance(rules_of(RuleFile(written(tmp_path, BOTH))), Rules)
    with pytest.raises(RulesError, match="no rules of requests"):
        rules_of(RuleFile(written(tmp_path, '[limits]\n"*" = "1/s"')))


def test_rules_alone_are_read_from_a_file_without_limits(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="the file has no field 'revision'"):
        Rules.load(written(tmp_path, BOTH))
