"""The views of a Django project, of both kinds."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.response import Response
from rest_framework.views import APIView

from batchlimit.integrations.django import limited
from batchlimit.integrations.django.rest import throttle


def hello(request: HttpRequest, **_: Any) -> HttpResponse:
    return HttpResponse("hello")


def status(request: HttpRequest, status: int) -> HttpResponse:
    return HttpResponse(status=status)


@limited("search:{user}", cost=2)
def search(request: HttpRequest) -> HttpResponse:
    return HttpResponse("found")


@limited("search:{user}", cost=2)
async def search_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse("found")


@limited("item:{user}:{number}")
def item(request: HttpRequest, number: int, user: str) -> HttpResponse:
    return HttpResponse(f"{number} {user}")


@method_decorator(limited("search:{user}", cost=2), name="dispatch")
class Search(View):  # type: ignore[misc]
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("found")


@method_decorator(limited("search:{user}", cost=2), name="dispatch")
class SearchAsync(View):  # type: ignore[misc]
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("found")


class SearchMethod(View):  # type: ignore[misc]
    @method_decorator(limited("search:{user}", cost=2))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("found")


class Rest(APIView):  # type: ignore[misc]
    throttle_classes = (throttle("search:{user}", cost=2),)

    def get(self, request: Any) -> Response:
        return Response("found")


_inner = [path("search", search)]
urlpatterns = [
    path("", hello),
    path("status/<int:status>", status),
    path("login/<int:status>", status),
    path("search", search),
    path("search-async", search_async),
    path("search-view", Search.as_view()),
    path("search-async-view", SearchAsync.as_view()),
    path("search-method", SearchMethod.as_view()),
    path("items/<int:number>/<user>", item),
    path("rest", Rest.as_view()),
    path("inner/", include(_inner)),
]
