"""The key that a request is charged to."""

from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.quota.lookup import quota_rule
from batchlimit.rules import Request, Rule, Rules, RulesError

ANY_TEXT = st.text(st.characters(codec=None), min_size=1)


def key_of(template: str, identity: Mapping[str, object], path: str = "/items/7", match: str = "/items/{id}") -> str:
    (applied,) = (
        Rules([Rule("rule", "1/s", key=template, match=match)]).applicable(Request("GET", path, identity)).applied
    )
    return applied.key


@pytest.mark.parametrize(
    ("template", "identity", "key"),
    [
        ("all", {}, "all"),
        ("user:{user}", {"user": "ann"}, "user:ann"),
        ("user:{user}", {"user": 7}, "user:7"),
        ("user:{user}", {"user": UUID(int=7)}, "user:00000000-0000-0000-0000-000000000007"),
        ("user:{user}", {"user": "ann@example.org"}, "user:ann@example.org"),
        ("user:{user}", {"user": "Jürgen"}, "user:Jürgen"),
        ("{ip}:login", {"ip": "203.0.113.9"}, "203.0.113.9:login"),
        ("ip:{ip}", {"ip": "2001:db8::1"}, "ip:2001%3Adb8%3A%3A1"),
        ("item:{id}", {}, "item:7"),
        ("u{user}:i{id}", {"user": "ann"}, "uann:i7"),
        # A value that would change how the key reads.
        ("user:{user}", {"user": "ann:admin"}, "user:ann%3Aadmin"),
        ("user:{user}", {"user": "*"}, "user:%2A"),
        ("user:{user}", {"user": "%2A"}, "user:%252A"),
        ("user:{user}", {"user": "{all}"}, "user:%7Ball%7D"),
        ("user:{user}", {"user": "a b\n"}, "user:a%20b%0A"),
        ("user:{user}", {"user": "\udcff"}, "user:%ED%B3%BF"),
    ],
)
def test_a_key_is_its_template_filled_in(template: str, identity: Mapping[str, object], key: str) -> None:
    assert key_of(template, identity) == key


def test_the_identity_comes_before_a_path_parameter_of_the_same_name() -> None:
    assert key_of("user:{user}", {"user": "ann"}, "/users/bob", "/users/{user}") == "user:ann"


@given(ANY_TEXT, ANY_TEXT)
def test_two_values_make_two_keys(one: str, other: str) -> None:
    assert (key_of("user:{user}", {"user": one}) == key_of("user:{user}", {"user": other})) == (one == other)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_two_pairs_of_values_make_two_keys(a: str, b: str, c: str, d: str) -> None:
    one, other = (key_of("{user}:x{ip}", {"user": user, "ip": ip}) for user, ip in ((a, b), (c, d)))
    assert (one == other) == ((a, b) == (c, d))


@given(ANY_TEXT)
def test_a_key_can_be_stored(value: str) -> None:
    key = key_of("user:{user}", {"user": value})
    key.encode()
    assert key.count(":") == 1
    assert not set(key) & set("*?[]{} \n")


@pytest.mark.parametrize(("length", "is_whole"), [(96, True), (97, False)])
def test_a_value_stands_whole_in_its_key_up_to_96_characters(length: int, is_whole: bool) -> None:
    assert (key_of("user:{user}", {"user": "a" * length}) == f"user:{'a' * length}") is is_whole


def test_the_length_of_a_key_is_bounded() -> None:
    one, other = (key_of("user:{user}", {"user": "x" * 10_000 + last}) for last in "ab")
    assert len(one) < 100
    assert one != other
    assert key_of("user:{user}", {"user": one.removeprefix("user:")}) != one


class Raising(Mapping[str, object]):
    """What may happen where a user's database is asked."""

    def __getitem__(self, name: str) -> object:
        raise OSError("no route")

    def __iter__(self) -> Iterator[str]:
        return iter(["user"])

    def __len__(self) -> int:
        return 1

    def __contains__(self, name: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ({}, "there is no {user}"),
        ({"user": None}, "there is no {user}"),
        ({"user": ""}, "{user} is empty"),
        ({"user": True}, "{user} is a bool, and must be a str, an int or a UUID"),
        ({"user": object()}, "{user} is a object, and must be a str, an int or a UUID"),
        (Raising(), "the identity raised OSError"),
    ],
)
def test_a_rule_whose_key_cannot_be_made_is_told(identity: Mapping[str, object], reason: str) -> None:
    rules = Rules([Rule("user", "1/s", key="user:{user}"), Rule("all", "1/s", key="all")])
    found = rules.applicable(Request("GET", "/", identity))
    assert [applied.key for applied in found.applied] == ["all"]
    assert [(unmade.rule.name, unmade.reason) for unmade in found.unmade] == [("user", reason)]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "must not be empty"),
        ("user::{user}", "empty part"),
        (":user", "empty part"),
        ("user:{user}{ip}", "needs a colon between {user} and {ip}"),
        ("user:{user}-{ip}", "needs a colon between {user} and {ip}"),
        ("user:{}", "a field is a name"),
        ("user:{user.name}", "a field is a name"),
        ("user:{user!r}", "a field is a name"),
        ("user:{0}", "a field is a name"),
        ("user:*", "letters, digits"),
        ("user:{user", "letters, digits"),
        ("us er", "letters, digits"),
        ("100%:{user}", "letters, digits"),
        (5, "a key is a str"),
    ],
)
def test_a_key_that_cannot_work_is_refused(key: str, says: str) -> None:
    with pytest.raises(RulesError, match=says):
        Rule("rule", "1/s", key=key)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user:{user}", "user:all"),
        ("user:{user}", "{kind}:ann"),
        ("a{x}", "{y}b"),
        ("a{x}", "ab{y}"),
        ("a:{x}:c", "a:b:{y}"),
        ("a{x}", "a"),  # by a hair: there are no empty values, but the patterns of quotas match them
    ],
)
def test_keys_that_a_client_could_make_equal_are_refused(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(RulesError, match=r"rule 'two': a client could choose .* Rename one key, as in 'two:"):
            Rules([Rule("one", "1/s", key=first), Rule("two", "1/s", key=second)])


@pytest.mark.parametrize(
    ("one", "other"), [("ab{x}ba", "aba"), ("a{x}", "b"), ("a{x}", "b{y}"), ("{x}a", "{y}b"), ("{x}ab", "{y}cb")]
)
def test_keys_that_no_client_could_make_equal_are_two_rules(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        assert len(Rules([Rule("one", "1/s", key=first), Rule("two", "1/s", key=second)]).quotas) == 2


def test_of_rules_with_one_key_the_first_is_named_where_another_key_could_be_made_equal() -> None:
    rules = [Rule("one", "1/s", key="a:{x}"), Rule("same", "1/s", key="a:{y}"), Rule("two", "1/s", key="a:all")]
    with pytest.raises(RulesError, match="'one'"):
        Rules(rules)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quota": "2/s"}, "quota is another: 2/s against 1/s"),
        ({"mode": "shadow"}, "mode is another"),
        ({"on_failure": "open"}, "on_failure is another"),
    ],
)
def test_rules_that_share_keys_agree_on_what_belongs_to_the_key(change: dict[str, str], says: str) -> None:
    two: dict[str, str] = {"quota": "1/s", "key": "user:{id}", **change}
    with pytest.raises(RulesError, match=says):
        Rules([Rule("one", "1/s", key="user:{user}"), Rule("two", **two)])  # type: ignore[arg-type]


def test_rules_with_one_key_share_its_bucket() -> None:
    rules = Rules([Rule("one", "2/s", key="user:{user}"), Rule("two", "2/s", key="user:{user}")])
    assert {str(quota) for quota in rules.quotas.values()} == {"2/s"}
    assert [applied.key for applied in rules.applicable(Request("GET", "/", {"user": "ann"})).applied] == [
        "user:ann"
    ] * 2


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        ("/a", "/a", False),
        ("*", "POST /a", False),
        ("GET /a", "POST /a", True),
        ("HEAD /a", "GET /a", False),
        ("/a", "/b", True),
        ("/a", "/a/b", True),
        ("/a", "/a/*", False),
        ("/a/b", "/a/*", False),
        ("/a/{x}", "/{y}/b", False),
        ("/a/{x}", "/b/{x}", True),
    ],
)
def test_costs_that_share_a_key_fit_together_where_both_rules_match(one: str, other: str, fits: bool) -> None:
    for first, second in ((one, other), (other, one)):
        rules = [Rule("one", "5/s", key="k", match=first, cost=3), Rule("two", "5/s", key="k", match=second, cost=3)]
        if fits:
            assert Rules(rules).quotas
        else:
            with pytest.raises(RulesError, match=r"rule 'two': its cost of 3 .* never fit a burst of 5") as error:
                Rules(rules)
            assert error.value.field == "cost"


TEMPLATES = ["{a}", "u:{a}", "u:{a}:{b}", "u:{a}:x", "{a}:{b}:{c}", "x{a}:y", "all", "{a}:p:{b}:q"]


@given(st.permutations(TEMPLATES), st.lists(ANY_TEXT, min_size=3, max_size=3))
def test_a_key_has_the_quota_of_its_rule(templates: list[str], values: list[str]) -> None:
    rules: list[Rule] = []
    for number, template in enumerate(templates, start=1):
        try:
            Rules([*rules, Rule(f"r{number}", f"{number}/s", key=template)])
        except RulesError:  # it overlaps one that is there
            continue
        rules.append(Rule(f"r{number}", f"{number}/s", key=template))
    checked = Rules(rules)
    quota_of = quota_rule(checked.quotas)
    for rule, key in checked.applicable(Request("GET", "/", dict(zip("abc", values, strict=True)))).applied:
        assert quota_of(key) == rule.quota
