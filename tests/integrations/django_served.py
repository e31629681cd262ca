"""A Django project for gunicorn (`wsgi`) and uvicorn (`asgi`): its store stands in the environment."""

import os
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.django.configuration import async_front, front
from batchlimit.rules import Rule, Rules

RULES = Rules(
    [
        Rule("burst", "7/hour", key="burst:{user}", match="/inner/hello"),
        Rule("search", "10/hour", key="search:{user}", match=None),
        Rule(
            "bytes",
            "100/day",
            key="bytes:{user}",
            match=["/stream/*", "/stream-async/*"],
            cost=50,
            charge=lambda response: min(response.sent, 90),
        ),
        Rule("broken", "100/hour", key="broken:{user}", match="/fails", charge=["5xx"]),
        Rule("item", "10/hour", key="item:{user}:{number}", match=None),
    ]
)
_PATIENCE: dict[str, Any] = {"deadline": 30.0, "connect_timeout": 30.0}


def open_limiter() -> RateLimiter:
    url, prefix = os.environ["STORE"], os.environ["PREFIX"]
    return RateLimiter.from_url(url, RULES.quotas, prefix=prefix, sizer=FixedBatch(1), **_PATIENCE)


def open_async_limiter() -> AsyncRateLimiter:
    url, prefix = os.environ["STORE"], os.environ["PREFIX"]
    return AsyncRateLimiter.from_url(url, RULES.quotas, prefix=prefix, sizer=FixedBatch(1), **_PATIENCE)


def left(request: HttpRequest) -> JsonResponse:
    limiter: Any = front().enforcer._limiter()
    found = limiter.peek(request.GET["key"]).remaining
    return JsonResponse(found, safe=False)


async def left_async(request: HttpRequest) -> JsonResponse:
    limiter: Any = async_front().enforcer._limiter()
    found = (await limiter.peek(request.GET["key"])).remaining
    return JsonResponse(found, safe=False)


settings.configure(
    SECRET_KEY="s",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["batchlimit.integrations.django"],
    MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"],
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
    BATCHLIMIT={
        "LIMITER": open_limiter,
        "ASYNC_LIMITER": open_async_limiter,
        "RULES": RULES,
        "IDENTIFY": lambda request: {"user": request.headers.get("x-user")},
    },
)


def __getattr__(name: str) -> Any:
    """Make the application that a server asks for, and no other."""
    return {"wsgi": get_wsgi_application, "asgi": get_asgi_application}[name]()


from tests.integrations import django_urls  # noqa: E402  views are imported after the settings

urlpatterns = [*django_urls.urlpatterns, path("left", left), path("left-async", left_async)]
