"""Rules from a file: what it says, and where an error of it is."""

# ruff: noqa: E501  # a row is read as one line
import contextlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit import FailurePolicy, Quota
from batchlimit.quota.overrides.code import CodeLimit
from batchlimit.rules import Request, Rule, RuleFile, Rules, RulesError, Statuses
from batchlimit.rules.file import rules_of
from batchlimit.rules.files.loader import Loader

TOML = """
[[rules]]  # strangers
name = "login"
quota = "5/minute; 100/day"
key = "login:{ip}"
match = ["POST /login", 'POST /v2/login']
charge = [401, "4xx"]
on_failure = {kind = "local", instances = 4}

[[rules]]
name = "api"
quota = "100/s burst 200"
key = "user:{user}"
match = "/api/*"
cost = "by_size"
mode = "shadow"
"""

YAML = """
rules:
  # strangers
  - name: login
    quota: 5/minute; 100/day
    key: "login:{ip}"
    match: [POST /login, POST /v2/login]
    charge: [401, 4xx]
    on_failure: {kind: local, instances: 4}
  - name: api
    quota: 100/s burst 200
    key: user:{user}
    match: /api/*
    cost: by_size
    mode: shadow
"""


def by_size(request: Request) -> int:
    return len(request.path)


RULES = [
    Rule(
        "login",
        Quota.per_minute(5) & Quota.per_day(100),
        key="login:{ip}",
        match=("POST /login", "POST /v2/login"),
        charge=Statuses(401, "4xx"),
        on_failure=FailurePolicy.local(4),
    ),
    Rule("api", Quota(100, 200), key="user:{user}", match="/api/*", cost=by_size, mode="shadow"),
]


@pytest.mark.parametrize(("name", "text"), [("r.toml", TOML), ("r.yaml", YAML), ("R.YML", YAML)])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_says_what_python_says(tmp_path: Path, name: str, text: str, coding: str, newline: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.replace("\n", newline).encode(coding))
    assert list(Rules.load(path, functions={"by_size": by_size}, identities={"ip", "user"})) == RULES


A = '[[rules]]\nname = "a"\nquota = "1/s"\nkey = "a"\n'
GOOD = 'name = "good"\nquota = "1/s"\nkey = "good"'
# fmt: off
TOML_ERRORS = [
    # the text, and the error; the mark ^ stands before what it is about
    ('[[rules]]\nname = "a"\nquota = "5/^minite"\nkey = "a"', "rule 'a': quota '5/minite': expected a unit"),
    ('[[rules]]\nname = "a"\nquota = \'5/s; 10/^\'\nkey = "a"', "rule 'a': quota '5/s; 10/': expected a unit"),
    ('[[rules]]\nname = "a"\nquota = ^"5\\u002Fminite"\nkey = "a"', "rule 'a': quota '5/minite': expected a unit"),
    ('[[rules]]\nname = "a"\nquota = ^5\nkey = "a"', "rule 'a': a quota must be a str"),
    ('[[rules]]\nname = "a"\nquota = "1/s"\n  ^mtach = "*"\nkey = "a"', "a rule has no field 'mtach': did you mean match?"),
    (A + '^"x y" = 1', "a rule has no field 'x y': there are name, quota"),
    (A + "^x.y = 1", "a rule has no field 'x'"),
    (f'[[rules]]\n{GOOD}\n\n[[^rules]]\nname = "a"\nkey = "a"', "rule 'a': the rule has no quota"),
    (f'[[rules]]\n{GOOD}\n[[ ^rules ]]\nquota = "1/s"\nkey = "a"', "the rule has no name"),
    ('[[rules]]\nname = ^7\nquota = "1/s"\nkey = "a"', "a name has 1 to 64 letters"),
    (A + "cost = ^2", "rule 'a': 2 tokens never fit a burst of 1"),
    (A + "cost = ^-1", "cost must be at least 0"),
    (A + "cost = ^true", "cost must be a whole number"),
    (A + 'cost = ^"len"', "cost names the function 'len'; functions= has: f"),
    (A + 'charge = ^"len"', "charge names the function 'len'"),
    (A + "charge = ^[4]", "a status is from 100 to 599"),
    (A + 'charge = ^["x"]', "a status is from 100 to 599"),
    (A + "charge = ^[]", "no status is ever charged"),
    (A + "charge = ^401", "charge is a function of the response, or statuses"),
    (A + 'mode = ^"log"', "mode is 'enforce' or 'shadow', not 'log'"),
    (A + 'on_failure = ^"no"', "a failure policy is 'closed', 'open' or"),
    (A + "on_failure = ^{instances = 2}", "only a 'local' policy divides"),
    (A + "on_failure = {^x = 2}", "on_failure has no field 'x'"),
    ('[[rules]]\nname = "a"\nquota = "1/s"\nkey = ^"a:"', "has an empty part"),
    (A + 'match = ^"x"', "rule 'a': match 'x' can never match"),
    (A + 'match = ["/a", # one\n  ^"x", "y"]', "match 'x' can never match"),
    (A + "match = ^[]", "match is empty"),
    (f'[[rules]]\n{GOOD}\n[[rules]]\nname = ^"good"\nquota = "1/s"\nkey = "a"', "rule 'good': two rules have this name"),
    (f'[[rules]]\n{GOOD}\n[[rules]]\nname = "a"\nquota = "2/s"\nkey = ^"good"', "rule 'a': it shares its keys"),
    (f'[[rules]]\n{GOOD}\n[[rules]]\nname = "a"\nquota = "1/s"\nkey = ^"{{ip}}"', "rule 'a': a client could choose"),
    ('[[rules]]\nname = "a"\nquota = "1/s"\nkey = ^"{ipp}"', "neither in the identity nor in '*': did you mean {ip}?"),
    ('[[rules]]\nname = "a"\nquota = "1/s"\nkey = "{ip}"\nmatch = ^"/{ip}"', "is a name of the identity too"),
    (f'rules = [{{name = "a", quota = "5/m ^inute", key = "a"}}]\n# {GOOD[:4]}', "rule 'a': quota '5/m inute': expected"),
    ("rules = ^[]", "rules are a list of at least one"),
    ('rules = [^"a"]', "a rule has fields such as name"),
    ('exempt = ["/hello", ^"hello"]\n' + A, "exempt names the function 'hello'; functions= has: f"),
    ('exempt = [^"/a b c"]\n' + A, "'/a b c': expected methods and one path"),
    ('exempt = ^"/x"\n' + A, "exempt is a list of patterns, not '/x'"),
    ('[^rules]\nname = "a"', r"rules are a list of at least one: write [[rules]]"),
    (f'[[rules]]\n{GOOD}\n[[^rule]]\nname = "a"', "the file has no field 'rule': did you mean rules?"),
    (f"[[rules]]\n{GOOD}\n[^limits]\na = '1/s'", "load it as a RuleFile, which stands wherever Rules do and has limits"),
    (f'[[rules]]\n{GOOD}\n[^rules.more]\nname = "a"', "a rule has no field 'more'"),
    ("[[rules]]\nname = ^a", "not TOML: Invalid value"),
    ('[[rules]]\nmode = """\nenforce"""\n# "it\'s\nname = "a"\nkey = "a"\nquota = ^[]', "a quota must be a str"),
    ("[[rules]]\n\"name\" = 'a'\n'k\\u0065y' = 1\nquota = \"1/s\"", "a rule has no field"),
    ('[[rules]]\n"n\\u0061me" = ^""\nkey = "a"\nquota = "1/s"', "a name has 1 to 64 letters"),
    ("[[rules]]\nname = \"a\"\nmode = '''shadow'''\ncost = ^1979-05-27 07:32:00 # when\nkey = \"a\"\nquota = \"1/s\"", "cost must be"),
]
YAML_ERRORS = [
    ("rules:\n- name: a\n  quota: 5/^minite\n  key: a", "rule 'a': quota '5/minite': expected a unit"),
    ("rules:\n- name: a\n  quota: '5/^minite'\n  key: a", "rule 'a': quota '5/minite': expected a unit"),
    ("rules:\n- name: a\n  quota: 1/s\n  ^mtach: '*'\n  key: a", "a rule has no field 'mtach': did you mean match?"),
    ("rules:\n- name: a\n  quota: 1/s\n  key: a\n  match: ['*',\n    ^x]", "match 'x' can never match"),
    ("rules:\n- name: a\n  quota: 1/s\n  key: a\n- ^name: b\n  key: b", "rule 'b': the rule has no quota"),
    ("rules:\n- name: a\n  quota: 1/s\n  key: a\n- name: ^a\n  quota: 1/s\n  key: b", "two rules have this name"),
    ("rules:\n- name: a\n  quota: 1/s\n  key: a\n  ^name: b", "'name' stands twice in one mapping"),
    ("rules: []\n^rules: []", "'rules' stands twice in one mapping"),
    ("rules:\n- name: a\n  quota: 1/s\n  key: a\n  match: *^", "not YAML: "),
    ("rules:\n- name: a\n  quota: 1/s\n  key: ^{ip}", "rule 'a': a key is a str such as 'user:{user}', not {'ip': None}"),
    ("rules: ^all", "rules are a list of at least one: write 'rules:' and a list"),
    ("rules: ^{a: {quota: 1/s}}", "rules are a list of at least one"),
    ("base: &base {quota: 1/s}\nrules: []", "the file has no field 'base'"),
]
# fmt: on


def error_of(text: str, form: Literal["toml", "yaml"]) -> RulesError:
    with pytest.raises(RulesError) as found:
        Rules.loads(text.replace("^", ""), format=form, source="rules", functions={"f": len}, identities=("ip", "user"))
    return found.value


@pytest.mark.parametrize(
    ("form", "text", "says"), [("toml", *each) for each in TOML_ERRORS] + [("yaml", *each) for each in YAML_ERRORS]
)
def test_an_error_says_what_and_where(form: Literal["toml", "yaml"], text: str, says: str) -> None:
    error = error_of(text, form)
    assert says in str(error)
    if "^" in text:
        before = text[: text.index("^")]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        assert (error.line, error.column) == place
        assert str(error).startswith(f"rules:{place[0]}:{place[1]}: ")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_places_are_those_of_the_file_itself(newline: str) -> None:
    error = error_of('[[rules]]\nname = "é"\nx = 1'.replace("\n", newline), "toml")
    assert (error.line, error.column) == (3, 1)


@pytest.mark.parametrize(("form", "text"), [("toml", ""), ("toml", "x = 1"), ("yaml", ""), ("yaml", "- a")])
def test_a_file_without_rules_is_refused(form: Literal["toml", "yaml"], text: str) -> None:
    assert "there are no rules, so nothing is limited" in str(error_of(text, form))


@pytest.mark.parametrize("read", [Rules.load, RuleFile])
@pytest.mark.parametrize(
    ("name", "data", "line"), [("rules.txt", b"", None), ("rules", b"", None), ("rules.toml", b"# a\n# \xff\n# c", 2)]
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, read: Any, name: str, data: bytes, line: int | None) -> None:
    (path := tmp_path / name).write_bytes(data)
    with pytest.raises(RulesError, match=name) as refused:
        read(path)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [(None, "there are no rules and no limits")]),
        ("{limits: {a: 1/x}, rules: [{key: a}]}", [(1, "limit 'a'"), (1, "the rule has no name")]),
        ("{rules: [{key: a}], limits: {a: 1/x}}", [(1, "the rule has no name"), (1, "limit 'a'")]),
        ("limits:\n  '': 1/s", [(2, "limit '': an empty name is that of no key")]),
        ("limits:\n  a: 1/x\nrules:\n- key: a", [(2, "limit 'a'"), (4, "the rule has no name")]),
    ],
)
def test_all_that_is_wrong_is_told_in_the_order_of_the_file(text: str, problems: list[tuple[int | None, str]]) -> None:
    found = Loader(text, "yaml", "rules", {}).problems()
    assert [each.line for each in found] == [line for line, _ in problems]
    assert all(says in str(each) for each, (_, says) in zip(found, problems, strict=True))


@pytest.mark.parametrize("level", ["[*a{0}, *a{0}]", "[*a{1}, *a{0}, *a{0}]", "{{<<: [*a{0}, *a{0}]}}"])
@pytest.mark.parametrize("last", ["rules: *a59", "limits: {a: *a59}", "rules: [{name: a, match: *a59}]"])
def test_a_bomb_of_aliases_is_refused_in_no_time(level: str, last: str) -> None:
    levels = "".join(f"a{i}: &a{i} {level.format(i - 1, i)}\n" for i in range(1, 60))
    problem = "aliases make it larger than 1,000,000 parts: write it out"
    assert problem in str(error_of(f"a0: &a0 {{x: 1}}\n{levels}{last}", "yaml"))


def test_aliases_that_make_no_large_text_are_read() -> None:
    text = "rules: [&a {name: a, quota: &q 1/s, key: 'a:{ip}', match: /a}, {<<: *a, name: b, key: 'b:{ip}', quota: *q}]"
    assert [(each.name, each.match, str(each.quota)) for each in Rules.loads(text, format="yaml")] == [
        ("a", ("/a",), "1/s"),
        ("b", ("/a",), "1/s"),
    ]


def test_without_pyyaml_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['yaml'] = None; from batchlimit.rules import Rules; Rules.loads('', format='yaml')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    told = (
        "ModuleNotFoundError: a file of rules in YAML, not in TOML, needs PyYAML, of the 'yaml' extra: "
        "pip install 'batchlimit[yaml]'"
    )
    assert run.stderr.splitlines()[-1].startswith(told), "Python 3.15 adds what else there is"


@pytest.mark.parametrize(
    ("codes", "status", "charged"),
    [
        ((401,), 401, True),
        ((401,), 403, False),
        (("4xx",), 499, True),
        (("4xx", 500), 500, True),
        (("5xx",), 600, False),
    ],
)
def test_statuses_decide_what_is_charged(codes: tuple[int | str, ...], status: int, charged: bool) -> None:
    assert Statuses(*codes)(SimpleNamespace(status=status)) is charged


@pytest.mark.parametrize("code", [99, 600, "6xx", "401", True, 401.0, None])
def test_a_status_is_from_100_to_599(code: object) -> None:
    assert Statuses(100, 599, "1xx", "5xx").codes
    with pytest.raises((ValueError, TypeError), match="a status is"):
        Statuses(code)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rules.toml", Path("rules.toml")])
def test_the_name_of_a_file_is_no_rules_and_load_is_named(name: str | Path) -> None:
    with pytest.raises(TypeError, match=r"rules\.toml.*Rules\.load reads a file"):
        Rules(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, Rule("all", "5/s", key="all")])
def test_what_is_no_list_of_rules_is_named(given: object) -> None:
    with pytest.raises(TypeError, match=r"Rules are made of Rule objects, not of (None|Rule)"):
        Rules(given)  # type: ignore[arg-type]


def test_one_name_of_an_identity_is_not_read_letter_by_letter() -> None:
    with pytest.raises(RulesError, match=r"did you mean \{ip\}"):
        Rules([Rule("all", "5/s", key="all:{ipp}")], identities="ip")


@pytest.mark.parametrize("read", [Rules.load, RuleFile])
def test_a_missing_file_says_where_it_was_looked_for(read: Callable[[str], object]) -> None:
    with pytest.raises(FileNotFoundError, match=f"by its whole path, .* in {re.escape(os.getcwd())}: 'nowhere.toml'"):
        read("nowhere.toml")


# A text of any kind is read, or refused by a RulesError
Form = Literal["toml", "yaml"]
WORDS = [
    *"[]{}=:,#-*&!|>%@'\"\n\t ?.0\0\ufeff\ud800é",
    *("[[rules]]\n", "rules:\n", "- ", "  ", "name", "quota", "key", "match", "cost", "charge", "on_failure", "mode"),
    "replaces",
    *("name: a\n", "name = 'a'\n", "quota = '1/s'\n", "quota: 1/s\n", "key: k\n", "key = 'k'\n", "&a", "*a", "<<: "),
    *("2001-99-99", "1e999", "0x1f", "null", "true", "'''", '"""', "!!python/name:os.system", "!!binary ", "\r\n"),
]


@pytest.mark.parametrize("form", ["toml", "yaml"])
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@example("rules: &a [*a]")
@example("rules: &a {name: *a}")
@example("? [a]\n: b")
@example("rules:\n- 2001-99-99: 1")
@example("rules: " + "9" * 5000)
@example("a = " + "9" * 5000)
@example("a = " + "[" * 5000)
@example("[" * 5000)
@example("rules: !!python/name:os.system ")
def test_no_text_raises_anything_else(form: Form, text: str) -> None:
    with contextlib.suppress(RulesError):
        assert len(Rules.loads(text, format=form))


def test_rules_and_their_errors_travel_between_processes() -> None:
    rules = Rules([Rule("a", "1/s", key="k:{ip}", match="/{x}/*", charge=Statuses(401), on_failure="open")])
    copy = pickle.loads(pickle.dumps(rules))
    assert list(copy) == list(rules)
    request = Request("GET", "/x/y", {"ip": "203.0.113.9"})
    assert copy.applicable(request) == rules.applicable(request)
    error = RulesError("no", source="f", rule="a", field="key", line=2, column=3)
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "f:2:3: rule 'a': no"


# A RuleFile: what it may say, and what is wrong with it
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
BOTH_IN_YAML = """
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


@pytest.mark.parametrize(("name", "text"), [("limits.toml", BOTH), ("limits.yaml", BOTH_IN_YAML)])
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


def test_a_look_that_was_interrupted_tells_its_followers_again_and_once(tmp_path: Path) -> None:
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
