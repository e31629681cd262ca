"""A route's own limit replaces the default one: alike in every framework."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchlimit.rules import Rule, RuleFile
from tests.integrations.everywhere import EVERYWHERE, FACES

DEFAULT = Rule("default", "2/hour", key="default:{user}")
HELLO = Rule("hello", "5/hour", key="hello:{user}", match="/hello", replaces="default")


@EVERYWHERE
def test_a_route_has_its_own_limit_in_place_of_the_default_one(serving: Callable[..., Any]) -> None:
    asked = Rule("asked", "9/hour", key="search:{user}", match=None)
    with serving([DEFAULT, HELLO, asked]) as served:
        assert served.statuses("/hello", 6) == [200] * 5 + [429]
        assert served.statuses("/search", 3) == [200] * 2 + [429]
        assert served.statuses("/hello", 1, "bob") == [200]
        assert served.get("/hello", "bob").fields["ratelimit"].startswith('"hello";r=3;')
        counts = served.statistics().rules
        assert (counts["default"].matched, counts["hello"].matched) == (3, 8)


@EVERYWHERE
def test_where_the_own_limit_has_no_key_the_default_one_holds(serving: Callable[..., Any]) -> None:
    own = Rule("hello", "5/hour", key="hello:{account}", match="/hello", replaces="default")
    asked = Rule("asked", "9/hour", key="search:{user}", match=None)
    with serving([DEFAULT, own, asked], unidentified="admit") as served:
        assert served.statuses("/hello", 3) == [200] * 2 + [429]
    with serving([DEFAULT, own, asked]) as served:
        assert served.statuses("/hello", 1) == [403]


def test_a_changed_file_replaces_from_then_on() -> None:
    text = """
[[rules]]
name = "default"
quota = "2/hour"
key = "default:{user}"
[[rules]]
name = "hello"
quota = "5/hour"
key = "hello:{user}"
match = "/hello"
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rules.toml")
        path.write_text(text)
        file = RuleFile(path)
        with FACES["wsgi"](file) as served:
            assert served.statuses("/hello", 3) == [200, 200, 429]
            path.write_text(text + 'replaces = "default"\n')
            assert file.look()
            assert served.statuses("/hello", 4) == [200] * 3 + [429]
