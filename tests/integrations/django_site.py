"""A Django project with limits, called by the test clients of Django in a time that the test sets."""

from functools import partial
from typing import Any

import django
from django.conf import settings
from django.test import AsyncClient, Client
from django.test.utils import override_settings

from batchlimit.batching import FixedBatch
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rule
from tests.integrations.enforcers import Twin
from tests.sync.stage import Clock

MIDDLEWARE = "batchlimit.integrations.django.RateLimitMiddleware"

if not settings.configured:
    settings.configure(
        SECRET_KEY="s",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="tests.integrations.django_urls",
        INSTALLED_APPS=["batchlimit.integrations.django", "rest_framework"],
        MIDDLEWARE=[MIDDLEWARE],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
        BATCHLIMIT={"URL": "memory://", "RULES": [Rule("all", "100/hour", key="all")]},
    )
    django.setup()


def who(request: Any) -> dict[str, Any]:
    return {"user": request.headers.get("x-user")}


class Site:
    """The project under WSGI or ASGI, and what is left of a key."""

    def __init__(self, asynchronous: bool, *rules: Rule, middleware: tuple[str, ...] = (MIDDLEWARE,), **more: Any):
        self.clock = Clock()
        self.twin = Twin(asynchronous, rules, self.clock, sizer=FixedBatch(1))
        mine: dict[str, Any] = {"RULES": list(rules), "HEADERS": Fields(secret=b"s", chance=lambda: 1.0)}
        mine |= {"LIMITER": lambda: self.twin.limiter, "ASYNC_LIMITER": lambda: self.twin.limiter, "IDENTIFY": who}
        self._override = override_settings(BATCHLIMIT={**mine, **more}, MIDDLEWARE=list(middleware))
        self._override.enable()
        self._client: Any = (AsyncClient if asynchronous else Client)(raise_request_exception=False)

    def call(self, path: str = "/", method: str = "GET", user: str | None = "ann", **headers: str) -> Any:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if user is not None:
            fields["x-user"] = user
        return self.twin._do(partial(self._client.generic, method, path, headers=fields))

    def comes_to(self, key: str, wanted: int) -> bool:
        """Whether so much is left of a key, as soon as the loop has settled."""
        return any(self.twin.left(key) == wanted for _ in range(100))

    def close(self) -> None:
        self._override.disable()
        self.twin.close()
