"""A second middleware charges the refusals of the first: who goes on is refused everything."""

from typing import Any

import pytest

from batchlimit.integrations import asgi, wsgi
from batchlimit.rules import Rule
from tests.integrations import everywhere
from tests.integrations.everywhere import FACES, in_thread, on_loop
from tests.integrations.made import user_of

BAN = Rule("ban", "3/hour", key="ban:{user}", charge=[429])
WITHIN = [
    Rule("hello", "2/hour", key="hello:{user}", match="/hello"),
    Rule("s", "9/h", key="search:{user}", match=None),
]


@pytest.mark.parametrize("face", ["asgi", "wsgi", "flask", "fastapi", "quart"])
def test_who_is_refused_three_times_is_refused_everything(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def around_wsgi(app: Any, statistics: Any) -> Any:
        outer = wsgi.RateLimitMiddleware(
            app, "memory://", [BAN], identify=lambda e: {"user": e["HTTP_X_USER"]}, headers="off"
        )
        return in_thread(outer, statistics)

    def around_asgi(app: Any, statistics: Any) -> Any:
        return on_loop(asgi.RateLimitMiddleware(app, "memory://", [BAN], identify=user_of, headers="off"), statistics)

    monkeypatch.setattr(everywhere, "in_thread", around_wsgi)
    monkeypatch.setattr(everywhere, "on_loop", around_asgi)
    with FACES[face](WITHIN) as served:
        assert served.statuses("/hello", 5) == [200] * 2 + [429] * 3
        assert served.statuses("/search", 2) == [429] * 2
        assert '"ban"' in served.get("/search").text
        assert served.statuses("/search", 4, "bob") == [200] * 4
