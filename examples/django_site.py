"""A Django project in one file: `gunicorn examples.django_site:wsgi` or `uvicorn examples.django_site:asgi`."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from batchlimit.integrations.django import limited
from batchlimit.rules import Rule


def identify(request: HttpRequest) -> dict[str, str]:
    return {"user": request.headers.get("X-User", "nobody")}


settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for an example"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["batchlimit.integrations.django"],  # checks the settings
    MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"],  # after the one that authenticates
    BATCHLIMIT={
        "URL": os.environ.get("STORE", "redis://localhost:6379/0"),
        "RULES": [  # or the path of a file of rules
            Rule("all", "5000/s", key="all"),
            Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed logins
            Rule("search", "4/minute", key="search:{user}", match=None),  # for views that ask for it
        ],
        "IDENTIFY": identify,  # or its dotted path
    },
)


@limited("search:{user}", cost=2)
async def search(request: HttpRequest) -> HttpResponse:
    return HttpResponse("found\n")


def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=204 if request.POST.get("password") == "open sesame" else 401)


urlpatterns = [path("search", search), path("login", login)]
wsgi, asgi = get_wsgi_application(), get_asgi_application()
