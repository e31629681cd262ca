"""The floor of every limiter that writes fields: a middleware that adds two constant ones, and does nothing else.

The fields are as long as those of our rules: what the server takes for them is no limiter's to save.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from batchlimit.integrations.headers import Fields, Header
from batchlimit.rules import Rule
from benchmarks.web_rules import PLENTY


def fixed_fields(rules: Sequence[Rule]) -> list[Header]:
    """Return the fields of one response of these rules."""
    return Fields(secret=b"fixed").of([(rule.name, rule.quota, rule.key, PLENTY - 1, None) for rule in rules])


def on_asgi(app: Any, rules: Sequence[Rule]) -> Any:
    """Return an ASGI application whose responses have these fields."""
    fields = fixed_fields(rules)

    async def add(scope: Any, receive: Any, send: Any) -> None:
        async def adding(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *fields]}
            await send(message)

        await app(scope, receive, adding)

    return add


def on_wsgi(app: Any, rules: Sequence[Rule]) -> Any:
    """Return a WSGI application whose responses have these fields."""
    fields = [(name.decode(), value.decode()) for name, value in fixed_fields(rules)]

    def add(environ: Any, start_response: Any) -> Iterable[bytes]:
        def starting(status: str, headers: Any, exc_info: Any = None) -> Any:
            return start_response(status, [*headers, *fields], exc_info)

        found: Iterable[bytes] = app(environ, starting)
        return found

    return add
