"""Views of Django: for threads, for tasks, and of REST framework. The settings of the project are the caller's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.test.utils import override_settings
from django.urls import include, path, re_path
from django.views.decorators.http import require_http_methods
from django.views.static import serve

from batchlimit.integrations.django import limited, middleware
from tests.integrations.made import Made, Said, View, user_named

Kind = Literal["sync", "async", "rest"]


def urls(views: Sequence[View], kind: Kind, files: str | None = None) -> tuple[Any, ...]:
    """Return the routes of these views, for `ROOT_URLCONF`."""
    return tuple(_urls(views, kind, files))


def made(views: Sequence[View], source: Any, rules: Any, *, kind: Kind, proxies: Any = None, **more: Any) -> Made:
    """Make a project behind rules, in a process of its own, with these settings more."""
    store = {"URL": source} if isinstance(source, str) else {"ASYNC_LIMITER" if kind == "async" else "LIMITER": source}
    settings.configure(
        SECRET_KEY="s",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["batchlimit.integrations.django"],
        MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
        BATCHLIMIT={**store, "RULES": rules, "IDENTIFY": user_named, "PROXIES": proxies},
        **more,
    )
    settings.ROOT_URLCONF = urls(views, kind)
    return get_asgi_application() if kind == "async" else get_wsgi_application(), middleware.statistics


@contextmanager
def project(
    views: Sequence[View], rules: Any, kind: Kind, *, files: str | None = None, more: Sequence[str] = (), **options: Any
) -> Iterator[Made]:
    """Serve them by the project of this process, with `more` middleware."""
    from tests.integrations import django_site  # which sets Django up: `made` does so by itself

    with override_settings(
        BATCHLIMIT={"RULES": rules, "IDENTIFY": user_named, **options},
        ROOT_URLCONF=urls(views, kind, files),
        MIDDLEWARE=[django_site.MIDDLEWARE, *more],
    ):
        yield get_asgi_application() if kind == "async" else get_wsgi_application(), middleware.statistics


def _urls(views: Sequence[View], kind: Kind, files: str | None) -> Iterator[Any]:
    for view in views:
        if view.answer is not None:  # there are no websockets
            route = path(view.written().removeprefix("/"), _view(view, view.answer, kind))
            yield path(f"{view.within}/", include([path("", include([route]))])) if view.within else route
    if files is not None:
        yield re_path("^static/(?P<path>.*)$", serve, {"document_root": files})


def _view(view: View, answer: Callable[..., Said], kind: Kind) -> Any:
    if kind == "rest":
        return _rest(view, answer)

    def endpoint(request: Any, **parameters: Any) -> Any:
        said = answer(request, **parameters)
        return StreamingHttpResponse(said.parts()) if said.stream else _response(said)

    async def in_task(request: Any, **parameters: Any) -> Any:
        said = answer(request, **parameters)
        return StreamingHttpResponse(said.async_parts()) if said.stream else _response(said)

    found: Any = in_task if kind == "async" else endpoint
    if view.key is not None:
        found = limited(view.key, charge=view.charge)(found)
    return found if view.methods == ("GET",) else require_http_methods(view.methods)(found)


def _rest(view: View, answer: Callable[..., Said]) -> Any:
    from rest_framework.views import APIView  # it reads the settings when it is imported

    from batchlimit.integrations.django.rest import throttle

    class Rest(APIView):  # type: ignore[misc]
        throttle_classes = () if view.key is None else (throttle(view.key, charge=view.charge),)

        def get(self, request: Any, **parameters: Any) -> Any:
            said = answer(request, **parameters)
            return StreamingHttpResponse(said.parts()) if said.stream else _response(said)

    return Rest.as_view()


def _response(said: Said) -> HttpResponse:
    return HttpResponse(said.text, status=said.status, headers=said.fields)
