"""The same shop, moved by the page: what slowapi had before each route are rules."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Request as Asked
from batchlimit.rules import Rule, Rules
from tests.integrations.moved import with_slowapi
from tests.integrations.moved.with_slowapi import MESSAGES, PLANS, by_partner, by_user, is_staff, size_of

WRITES = "6/hour"
SEARCH = "5/hour; 8/day"
PAGES = {"home": "/", "old": "/old"}
QUOTAS = {"news": "3/hour"}


def who(scope: dict[str, Any]) -> dict[str, str]:
    request = Request(scope)
    user = by_user(request)
    return {"user": user, "partner": by_partner(request), "plan": PLANS.get(user, "free"), "path": request.url.path}


def refused(scope: dict[str, Any], refusal: Any) -> JSONResponse:
    (rule, *_) = refusal.rules
    return JSONResponse({"error": MESSAGES.get(rule, "slow down")}, status_code=refusal.status)


def cost_of_picture(asked: Asked) -> int:
    return size_of(Request(asked.native))


def cost_of_thumbnail(asked: Asked) -> int:
    return 0 if is_staff(Request(asked.native)) else 1


RULES = Rules(
    [
        Rule("application", "9/hour", key="application:{user}", match=[f"GET {path}" for path in PAGES.values()]),
        *(Rule(name, "4/hour", key=f"{name}:{{user}}", match=f"GET {path}") for name, path in PAGES.items()),
        Rule("search", SEARCH, key="search:{user}", match="GET /products/search", replaces="product"),
        Rule("product", "3/hour", key="product:{user}:{id}", match="GET /products/{id}"),
        Rule("review", "2/hour", key="review:{user}:{id}", match="POST /products/{id}/reviews"),
        Rule("writes", WRITES, key="writes:{user}", match="POST,DELETE /cart/lines"),
        Rule("coupon", "2/hour", key="coupon:{user}", match="POST /cart/coupon"),
        Rule("checkout", "6/hour", key="checkout:{user}", match="POST /orders/checkout", cost=2),
        Rule("export", "2/hour", key="export:{user}", match="GET /orders/export"),
        Rule("report", "2/hour", key="report:{plan}:{user}", match="GET /orders/report"),
        Rule("login", "3/hour", key="login:{user}", match="POST /account/login"),
        Rule("partner", "2/hour", key="partner:{partner}", match="GET /account/partner"),
        Rule("code", "2/hour; 3/day", key="code:{user}", match="POST /account/codes"),
        Rule("picture", "10/hour", key="picture:{user}", match="POST /media/pictures", cost=cost_of_picture),
        Rule(
            "thumbnail",
            "3/hour",
            key="thumbnail:{user}:{path}",
            match="GET /media/thumbnails/*",
            cost=cost_of_thumbnail,
        ),
        Rule("tags", "4/hour", key="tags:{partner}", match="POST,DELETE /media/pictures/{id}/tags"),
        Rule("latest", QUOTAS["news"], key="latest:{user}", match="GET /v1/news/latest"),
        Rule("archive", "3/hour", key="archive:{user}:{year}", match="GET /v1/news/letters/archive/{year}"),
        Rule("archives", "2/hour", key="archives:{partner}:{year}", match="GET /v1/news/letters/archive/{year}"),
    ],
    exempt=["/health", "/admin/users"],
    limits={"report:pro:*": "6/hour"},
)


class Deleted:
    """In place of the limiter of slowapi: the decorators before its routes are gone."""

    def limit(self, *_: object, **__: object) -> Callable[[Any], Any]:
        return self.exempt

    shared_limit = limit

    def exempt(self, view: Any) -> Any:
        return view


def build(url: str) -> FastAPI:
    """Return the shop."""
    app, deleted = FastAPI(), Deleted()
    add_rate_limits(app, url, RULES, identify=who, on_rejected=refused, headers="legacy", checks=False)
    with_slowapi.build_routes(app, deleted)
    return app
