"""The project of the matrix in Django: with views for threads, with views for tasks, and in REST framework."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path

from batchlimit.integrations.django import limited
from tests.integrations.faces import rules
from tests.integrations.matrix import with_flask

Kind = Literal["sync", "async", "rest"]
View = Callable[..., Any]


def build(limiter: Any, kind: Kind) -> Any:
    settings.configure(
        SECRET_KEY="s",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["batchlimit.integrations.django"],
        MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
        BATCHLIMIT={
            "ASYNC_LIMITER" if kind == "async" else "LIMITER": limiter,
            "RULES": rules.RULES,
            "IDENTIFY": lambda request: {"user": request.headers.get("x-user", "nobody")},
        },
    )
    settings.ROOT_URLCONF = tuple(_urls(kind))  # REST framework reads the settings when it is imported
    return get_asgi_application() if kind == "async" else get_wsgi_application()


def _urls(kind: Kind) -> Iterator[Any]:
    view = {"sync": _sync, "async": _async, "rest": _rest}[kind]
    source: Any = rules if kind == "async" else with_flask
    search = view("search:{user}", lambda: HttpResponse("found"))
    yield path("hello", view(None, lambda: HttpResponse("hello")))
    yield path("search", search)
    yield path("included/", include([path("search", search)]))
    yield path("mounted/", include([path("", include([path("search", search)]))]))
    yield path("items/<id>", view("item:{id}", lambda **told: HttpResponse(told["id"])))
    yield path("stream", view("bytes:{user}", lambda: StreamingHttpResponse(source.parts())))
    yield path("endless", view("gone:{user}", lambda: StreamingHttpResponse(source.endless())))
    login = view("login:{user}", lambda **told: HttpResponse(status=told["status"]), charge=[401])
    yield path("login/<int:status>", login)
    yield path("broken", view("broken:{user}", _broken))
    for name in ("closed", "open", "local"):
        yield path(name, view(name, lambda: HttpResponse("here")))


def _broken() -> HttpResponse:
    raise ZeroDivisionError


def _sync(key: str | None, answer: View, **options: Any) -> View:
    def view(request: Any, **told: Any) -> Any:
        return answer(**told)

    return limited(key, **options)(view) if key else view


def _async(key: str | None, answer: View, **options: Any) -> View:
    async def view(request: Any, **told: Any) -> Any:
        return answer(**told)

    return limited(key, **options)(view) if key else view


def _rest(key: str | None, answer: View, **options: Any) -> View:
    from rest_framework.views import APIView

    from batchlimit.integrations.django.rest import throttle

    class Rest(APIView):  # type: ignore[misc]
        throttle_classes = (throttle(key, **options),) if key else ()

        def get(self, request: Any, **told: Any) -> Any:
            return answer(**told)

    made: View = Rest.as_view()
    return made
