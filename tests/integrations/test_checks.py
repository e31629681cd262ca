"""Each check by its name: what makes it speak, what it says, and that it can be switched off."""

from _thread import allocate_lock
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from batchlimit import RateLimiter
from batchlimit.integrations.address import Addresses, TrustedProxies
from batchlimit.integrations.checks import FIRST, NAMES, CheckName, Checks
from batchlimit.integrations.enforcement import Enforcer
from batchlimit.integrations.front import Front
from batchlimit.rules import Request, Rule, RuleFile, Rules
from batchlimit.stores import MemoryStore
from tests.sync.stage import Clock

ALL = Rule("all", "1000000/s", key="all")
IP = Rule("ip", "1000000/s", key="ip:{ip}")
USER = Rule("user", "1000000/s", key="user:{user}:{ip}", match="/u/*")
SHADOW = Rule("trial", "1/hour", key="trial", mode="shadow")
PROXIES = TrustedProxies(["10.0.0.0/8"])
FORWARDED = [(b"x-forwarded-for", b"203.0.113.9")]
SILENCE = 7200.0


@dataclass
class Case:
    """Requests that a check looks at: (path, peer, header fields, user, seconds that pass before it)."""

    rules: list[Rule]
    requests: list[tuple[str, str | None, Any, str, float]] = field(default_factory=list)
    store: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    is_patched: bool = False
    quotas: Any = None


def many(peers: Callable[[int], str], users: Callable[[int], str], *, times: int = FIRST, fields: Any = ()) -> Any:
    return [("/u/x", peers(number), fields, users(number), 0.0) for number in range(times)]


def one(_: int) -> str:
    return "192.0.2.1"


def each(number: int) -> str:
    return f"192.0.2.{number % 200}"


REQUEST = ("/", "192.0.2.1", (), "ann", 0.0)
BY_PROXY = ("/", "10.0.0.1", FORWARDED, "ann", 0.0)

FOUND: list[tuple[CheckName, Case, dict[str, str]]] = [
    ("memory-store", Case([ALL], store="memory://"), {"": "n times as much is admitted"}),
    ("shadow-only", Case([SHADOW]), {"": "all rules are in shadow mode"}),
    ("ipv6-prefix", Case([IP], options={"ipv6_prefix": 128}), {"": "ipv6_prefix=128 limits parts"}),
    ("forwarded-untrusted", Case([IP], [(*REQUEST[:2], FORWARDED, "ann", 0.0)]), {"": "pass proxies=TrustedProxies"}),
    ("proxy-unseen", Case([ALL], many(each, one), options={"proxies": PROXIES}), {"": "TrustedProxies 10.0.0.0/8"}),
    (
        "proxy-unseen",
        Case([ALL], many(lambda _: "10.0.0.1", each), options={"proxies": PROXIES}),
        {"": "does the proxy write the field"},
    ),
    ("one-key", Case([IP, USER, ALL], many(one, each)), {"ip": "have the same {ip}"}),
    ("one-key", Case([IP, USER], many(one, one)), {"ip": "{ip}", "user": "have the same {user} and {ip}"}),
    ("unmatched", Case([USER], [REQUEST, ("/z", *REQUEST[1:])]), {"": "no rule matches GET '/'"}),
    (
        "silent-rule",
        Case([ALL, USER, Rule("asked", "1/s", key="asked", match=None)], [REQUEST, (*REQUEST[:4], SILENCE)]),
        {"user": "is its `match` right?", "asked": "does a route ask for its key?"},
    ),
    ("no-key", Case([USER], [("/u/x", "192.0.2.1", (), "", 0.0)] * 2), {"user": "{user} is empty; let `identify`"}),
    ("no-key", Case([IP], [("/", None, (), "ann", 0.0)]), {"ip": "pass proxies=TrustedProxies(['unix'])"}),
    ("other-quota", Case([ALL, IP], quotas="100/s"), {"all": "the limiter has 100/s", "ip": "1000000/s for 'ip:*'"}),
    ("other-quota", Case([ALL, IP], quotas={"all": "1/h", "*": IP.quota}), {"all": "the limiter has 1/h"}),
    ("other-quota", Case([ALL, IP], quotas={"all": ALL.quota}), {"ip": "the limiter has none"}),
    ("disabled", Case([ALL], options={"enabled": False}), {"": "no request is limited"}),
    ("late-patch", Case([ALL], [REQUEST] * 2, is_patched=True), {"": "before any other import"}),
]

NOTHING: list[tuple[str, Case]] = [
    ("a shadow rule beside another one", Case([SHADOW, ALL])),
    ("clients by their networks", Case([IP], options={"ipv6_prefix": 64})),
    ("forwarding fields of a proxy that is trusted", Case([IP], [BY_PROXY], options={"proxies": PROXIES})),
    ("fewer requests than a check looks at", Case([IP], many(one, one, times=FIRST - 1), options={"proxies": PROXIES})),
    ("one request by the proxy", Case([ALL], [BY_PROXY, *many(each, each)], options={"proxies": PROXIES})),
    ("another client at last", Case([IP], [*many(one, one, times=FIRST - 1), ("/", "192.0.2.2", (), "ann", 0.0)])),
    ("a key that has no fields", Case([ALL], many(one, one))),
    ("every rule matched", Case([ALL], [REQUEST, (*REQUEST[:4], SILENCE)])),
    ("a quota of one key beside that of its rule", Case([IP], quotas={"ip:192.0.2.1": "1/h", "ip:*": IP.quota})),
    ("a function that returns the quotas", Case([ALL, IP], quotas=lambda key: {"ip:192.0.2.9": "1/h"}[key])),
    ("hours that are not over", Case([ALL, USER], [REQUEST, (*REQUEST[:4], SILENCE - 1)])),
]


def _another_lock() -> Any:
    return allocate_lock()


def play(case: Case, given: Any) -> Checks:
    """Do what the faces do: look at the start, and have each request admitted."""
    clock, rules = Clock(), Rules(case.rules)
    v6 = case.options.get("ipv6_prefix", 56)
    checks = Checks(given).begin(case.store, rules, v6, enabled=case.options.get("enabled", True))
    addresses = Addresses(case.options.get("proxies"), v6, checks=checks)
    with RateLimiter(MemoryStore(clock), case.quotas or rules.quotas, clock=clock) as limiter:
        enforcer = Enforcer(limiter, rules, silence=SILENCE, clock=clock, checks=checks)
        with patch("threading.Lock", _another_lock) if case.is_patched else nullcontext():
            for path, peer, fields, user, seconds in case.requests:
                clock.pass_by(seconds)
                enforcer.admit(Request("GET", path, {**addresses.of(peer, 5000, fields), "user": user}))
        assert enforcer.statistics().findings == checks.findings
    return checks


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what checks said: on a busy machine a store may be late, and back."""
    return [record.getMessage() for record in caplog.records if getattr(record, "batchlimit_event", "") == "web.check"]


@pytest.mark.parametrize(("name", "case", "expected"), FOUND)
def test_a_check_tells_once_of_each_rule(name: CheckName, case: Case, expected: Any, caplog: Any) -> None:
    found = play(case, {other: other == name for other in NAMES})
    assert {name: tuple(sorted(rules)) for name, rules in found.findings.items()} == {name: tuple(sorted(expected))}
    assert len(said(caplog)) == len(expected)
    for text in expected.values():
        assert sum(text in message for message in said(caplog)) >= 1


@pytest.mark.parametrize(("name", "case", "expected"), FOUND)
def test_a_check_that_is_off_says_nothing(name: CheckName, case: Case, expected: Any, caplog: Any) -> None:
    assert name not in play(case, {name: False}).findings
    assert not play(case, False).findings
    assert not any(text in message for text in expected.values() for message in said(caplog))


@pytest.mark.parametrize(("what", "case"), NOTHING)
def test_a_check_says_nothing_where_nothing_is_wrong(what: str, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    assert not play(case, True).findings, what
    assert not said(caplog)


@pytest.mark.parametrize(("peer", "expected"), [("192.0.2.1", {}), (None, {"proxy-unseen": ("",)})])
def test_a_server_that_read_the_forwarding_field_itself_has_seen_the_proxy(peer: str | None, expected: Any) -> None:
    """uvicorn puts the client in place of the peer, with a port of 0; a Unix socket has neither."""
    addresses = Addresses(PROXIES, 56, checks=(checks := Checks()))
    for _ in range(FIRST):
        addresses.of(peer, 0, ())
    assert checks.findings == expected


def test_every_check_has_a_case() -> None:
    assert {name for name, _, _ in FOUND} == set(NAMES)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"unmached": False}, ValueError, "did you mean 'unmatched'"),
        ({"?": True}, ValueError, "there are memory-store"),
        ({"unmatched": 0}, TypeError, "not {'unmatched': 0}"),
        ("unmatched", TypeError, "not 'unmatched'"),
        (None, TypeError, "not None"),
    ],
)
def test_a_setting_that_cannot_work_is_an_error_of_the_start(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Front("memory://", [ALL], checks=given)


def test_a_limiter_by_a_file_is_compared_with_rules_that_do_not_stand_there(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text('limits = {"all" = "1/h", "*" = "1000000/s"}')
    assert Front(RateLimiter.from_url("memory://", RuleFile(path)), [ALL, IP]).statistics().findings == {
        "other-quota": ("all",)
    }
