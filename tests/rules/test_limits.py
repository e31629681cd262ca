"""Some keys of a rule have a quota of their own: those of a plan."""

import pickle
from typing import Any

import pytest

from batchlimit import FailurePolicy, Quota, RateLimiter
from batchlimit.integrations.wsgi import RateLimitMiddleware, decisions
from batchlimit.rules import Rule, RuleFile, Rules, RulesError

USER = Rule("user", "2/hour", key="user:{plan}:{user}", on_failure="open", mode="shadow")
FILE = """
[limits]
"user:pro:*" = "600/hour"
"*" = "1/hour"
[[rules]]
name = "user"
quota = "2/hour"
key = "user:{plan}:{user}"
"""


def test_a_limit_comes_before_the_rule_of_its_keys_and_has_the_rest_of_it() -> None:
    rules = Rules([USER], limits={"user:pro:*": "600/hour", "user:free:ann": Quota.per_hour(9)})
    assert {name: str(quota) for name, quota in rules.quotas.items()} == {
        "user:pro:*": "600/h",
        "user:free:ann": "9/h",
        "user:*:*": "2/h",
    }
    with RateLimiter.from_url("memory://", rules.quotas) as limiter:
        limits = [limiter.decide(key).limit for key in ("user:pro:ann", "user:free:ann", "user:free:bob")]
        assert limits == [600, 9, 2]
    assert {(limit.mode, limit.on_failure) for limit in rules.limits.values()} == {("shadow", FailurePolicy.open())}
    assert pickle.loads(pickle.dumps(rules)).quotas == rules.quotas


def served(rules: Any) -> Any:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        told = decisions(environ)["user"]
        return [f"{told.limit} {told.remaining}".encode()]

    return RateLimitMiddleware(app, "memory://", rules, identify=lambda environ: environ["test.who"])


@pytest.mark.parametrize("form", ["code", "file"])
def test_a_face_goes_by_them_and_its_fields_tell_of_them(form: str, tmp_path: Any) -> None:
    rules: Any = Rules([Rule("user", "2/hour", key="user:{plan}:{user}")], limits={"user:pro:*": "600/hour"})
    if form == "file":
        (tmp_path / "limits.toml").write_text(FILE)
        rules = RuleFile(tmp_path / "limits.toml")
    limited, told = served(rules), dict[str, str]()

    def ask(plan: str) -> list[bytes]:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "test.who": {"plan": plan, "user": "ann"}}
        return list(limited(environ, lambda status, fields: told.update(fields, status=status)))

    assert [ask("free"), ask("free")] == [[b"2 1"], [b"2 0"]]
    assert ask("free")
    assert told["status"][:3] == "429"
    assert ask("pro") == [b"600 599"]
    assert "q=600;w=3600" in told["ratelimit-policy"]
    assert limited.statistics().findings == {"memory-store": ("",)}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"usr:pro:*": "9/h"}, "limit 'usr:pro:*': no rule has such keys; rules have 'user:*:*'"),
        ({"user:*": "9/h"}, "limit 'user:*': no rule has such keys"),
        ({"user:*:*": "9/h"}, "a rule has this quota already"),
        ({"user:pro:*": "9/month"}, "expected a unit"),
        ({"user:pro:*": 9}, "9"),
        ({"user:pro:*": "2/h"}, "3 tokens never fit a burst of 2"),
    ],
)
def test_a_limit_that_no_rule_can_have_is_an_error(limits: Any, problem: str) -> None:
    with pytest.raises(RulesError) as refused:
        Rules([Rule("user", "9/hour", key="user:{plan}:{user}", cost=3)], limits=limits)
    assert problem in str(refused.value)
    assert refused.value.field == "limits"


def test_limits_come_by_name() -> None:
    with pytest.raises(TypeError, match="a mapping from key or pattern to quota, not as"):
        Rules([], limits=[("a", "1/s")])  # type: ignore[arg-type]
