"""The applications of `web_users.py`: one route behind each limiter of a framework, by the header x-user."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

STORE, QUOTA, PREFIX = (os.environ.get(name, "") for name in ("STORE", "QUOTA", "PREFIX"))
"""Of the process that serves one of these. A quota is "100/minute", which all of them understand."""
LIMITS = STORE.replace("unix://", "redis+unix://")
"""The same server, for slowapi and Flask-Limiter."""


def application() -> Any:
    """Return the application that the environment names, such as "fastapi slowapi 4"."""
    framework, name, rules = os.environ["CONTESTANT"].split(" ")
    return APPS[framework][name](int(rules))


def _rules(count: int) -> list[Any]:
    from batchlimit.rules import Rule

    return [Rule(f"{PREFIX}{n}", QUOTA, key=f"{PREFIX}{n}:{{user}}") for n in range(count)]


def _fastapi(*dependencies: Any) -> Any:
    from fastapi import Depends, FastAPI

    app = FastAPI()

    @app.get("/item", dependencies=[Depends(each) for each in dependencies])
    async def item() -> dict[str, bool]:
        return {"ok": True}

    return app


def _ours_on_fastapi(rules: int) -> Any:
    from batchlimit.integrations.fastapi import add_rate_limits

    app = _fastapi()
    add_rate_limits(
        app,
        STORE,
        rules=_rules(rules),
        identify=lambda scope: {"user": dict(scope["headers"])[b"x-user"].decode()},
    )
    return app


def _slowapi(limits: int) -> Any:
    from fastapi import FastAPI, Request
    from slowapi import Limiter

    app = FastAPI()
    limiter: Any = Limiter(key_func=lambda request: request.headers["x-user"], storage_uri=LIMITS)
    app.state.limiter = limiter

    async def item(request: Request) -> dict[str, bool]:
        return {"ok": True}

    view: Any = item
    for n in range(limits):
        view = limiter.limit(QUOTA, key_func=lambda request, n=n: f"{n}:{request.headers['x-user']}")(view)
    app.get("/item")(view)
    return app


def _fastapi_limiter(limits: int) -> Any:
    import redis.asyncio
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate, SingleBucketFactory, StateBucket, TokenBucket
    from pyrate_limiter.buckets.redis_state import RedisStateStore

    client, count = redis.asyncio.Redis.from_url(STORE), int(QUOTA.partition("/")[0])

    def bucket(name: str) -> Any:
        store = RedisStateStore(client, f"{PREFIX}{name}")
        return StateBucket([Rate(count, Duration.MINUTE, burst=count)], algorithm=TokenBucket(), store=store)

    class ByUser(SingleBucketFactory):
        """Each user has a bucket."""

        def get(self, item: Any) -> Any:
            return bucket(item.name)

    async def user(request: Any) -> str:
        return str(request.headers["x-user"])

    limiters = [Limiter(ByUser(bucket("-"), schedule_leak=False)) for _ in range(limits)]
    return _fastapi(*(RateLimiter(each, identifier=user) for each in limiters))


def _item() -> str:
    return "ok"


def _flask() -> Any:
    from flask import Flask

    app = Flask("benchmark")
    app.add_url_rule("/item", view_func=_item)
    return app


def _ours_on_flask(rules: int) -> Any:
    from batchlimit.integrations.flask import Limits

    app = _flask()
    Limits(STORE, _rules(rules), app, identify=lambda request: {"user": request.headers["x-user"]})
    return app


def _flask_limiter(limits: int) -> Any:
    from flask import Flask, request
    from flask_limiter import Limiter

    app, view = Flask("benchmark"), _item
    limiter: Any = Limiter(lambda: request.headers["x-user"], app=app, storage_uri=LIMITS)
    for n in range(limits):
        view = limiter.shared_limit(QUOTA, scope=f"{PREFIX}{n}")(view)
    app.add_url_rule("/item", view_func=view)
    return app


def _django(view: Callable[[], Any] | None = None, **options: Any) -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.urls import path

    caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": STORE}}
    settings.configure(SECRET_KEY="s", ALLOWED_HOSTS=["*"], CACHES=caches, **options)
    django.setup()
    settings.ROOT_URLCONF = (path("item", view() if view else _django_item),)
    return get_wsgi_application()


def _django_item(_request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse("ok", headers={"Content-Length": "2"})  # as by CommonMiddleware, which every project has


def _ours_on_django(rules: int) -> Any:
    def identify(request: Any) -> dict[str, str]:
        return {"user": request.headers["x-user"]}

    mine = {"URL": STORE, "RULES": _rules(rules), "IDENTIFY": identify}
    return _django(MIDDLEWARE=["batchlimit.integrations.django.RateLimitMiddleware"], BATCHLIMIT=mine)


def _django_ratelimit(limits: int) -> Any:
    def view() -> Any:
        ratelimit = import_module("django_ratelimit.decorators").ratelimit
        found: Any = _django_item
        for n in range(limits):
            found = ratelimit(key="header:x-user", rate=QUOTA.replace("minute", "m"), group=f"{PREFIX}{n}")(found)
        return found

    return _django(view)


APPS: dict[str, dict[str, Callable[[int], Any]]] = {
    "fastapi": {
        "none": lambda _: _fastapi(),
        "batchlimit": _ours_on_fastapi,
        "slowapi": _slowapi,
        "fastapi-limiter": _fastapi_limiter,
    },
    "flask": {"none": lambda _: _flask(), "batchlimit": _ours_on_flask, "Flask-Limiter": _flask_limiter},
    "django": {"none": lambda _: _django(), "batchlimit": _ours_on_django, "django-ratelimit": _django_ratelimit},
}
"""By framework; each is called with how many rules or limits it is to have."""
