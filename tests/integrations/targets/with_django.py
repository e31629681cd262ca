"""Routes of Django, under ASGI and WSGI: functions that take every method."""

from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path, re_path

from tests.integrations.targets.apps import MOUNT, RULES, STORE, served

settings.configure(
    SECRET_KEY="s",
    ALLOWED_HOSTS=["*"],
    FORCE_SCRIPT_NAME=MOUNT or None,
    INSTALLED_APPS=["batchlimit.integrations.django"],
    MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"],
    BATCHLIMIT={"URL": STORE, "RULES": RULES},
)


def _answering(name: str, kind: str) -> Any:
    def answer(request: Any, *rest: str, **told: str) -> HttpResponse:
        return HttpResponse("here", headers=served(name, request.method))

    async def answer_in_a_task(request: Any, *rest: str, **told: str) -> HttpResponse:
        return answer(request)

    return answer if kind == "threads" else answer_in_a_task


def _routed(kind: str) -> None:
    settings.ROOT_URLCONF = (
        path("open", _answering("open", kind)),
        path("login", _answering("login", kind)),
        path("items/<id>", _answering("item", kind)),
        re_path("^api(/.*)?$", _answering("api", kind)),
        path("orders", _answering("order", kind)),
    )


def threads() -> Any:
    _routed("threads")
    return get_wsgi_application()


def tasks() -> Any:
    _routed("tasks")
    return get_asgi_application()
