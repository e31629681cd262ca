"""The same shop, moved by the page: what slowapi had before each route are rules."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel

from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Request as Asked
from batchlimit.rules import Rule, Rules

PRODUCTS = {number: {"id": number, "name": f"product {number}", "price": number * 100} for number in range(1, 21)}
PLANS = {"ann": "free", "bob": "pro", "eve": "free", "root": "pro"}
STAFF = {"root"}
MESSAGES = {"login": "too many passwords", "report": "too many reports"}
WRITES = "6/hour"
SEARCH = "5/hour; 8/day"
PAGES = {"home": "/", "about": "/about", "old": "/old"}
QUOTAS = {"news": "3/hour", "mail": "2/hour; 3/day"}


class Line(BaseModel):
    """A product of a cart."""

    product: int
    number: int = 1


class Credentials(BaseModel):
    """What a user logs in with."""

    user: str
    password: str


class Review(BaseModel):
    """What a user says of a product."""

    stars: int
    text: str = ""


def by_user(request: Request) -> str:
    return request.headers.get("x-user", "nobody")


class ByField:
    """Who asks, as a field of the request says it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, request: Request) -> str:
        return request.headers.get(self.name, "none")


by_partner = ByField("x-partner")


def who(scope: dict[str, Any]) -> dict[str, str]:
    request = Request(scope)
    user = by_user(request)
    return {"user": user, "partner": by_partner(request), "plan": PLANS.get(user, "free"), "path": request.url.path}


def is_staff(request: Request) -> bool:
    return by_user(request) in STAFF


def size_of(request: Request) -> int:
    return int(request.query_params.get("size", "1"))


def user_of(request: Request) -> str:
    user = by_user(request)
    if user not in PLANS:
        raise HTTPException(401, "who are you?")
    return user


User = Annotated[str, Depends(user_of)]


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
        Rule("reviews", "4/hour", key="reviews:{user}:{id}", match="GET /products/{id}/reviews"),
        Rule("review", "2/hour", key="review:{user}:{id}", match="POST /products/{id}/reviews"),
        Rule("cart", "9/hour", key="cart:{user}", match="GET /cart"),
        Rule("writes", WRITES, key="writes:{user}", match="POST,DELETE /cart/lines"),
        Rule("coupon", "2/hour", key="coupon:{user}", match="POST /cart/coupon"),
        Rule("checkout", "6/hour", key="checkout:{user}", match="POST /orders/checkout", cost=2),
        Rule("export", "2/hour", key="export:{user}", match="GET /orders/export"),
        Rule("report", "2/hour", key="report:{plan}:{user}", match="GET /orders/report"),
        Rule("login", "3/hour", key="login:{user}", match="POST /account/login"),
        Rule("partner", "2/hour", key="partner:{partner}", match="GET /account/partner"),
        Rule("code", "2/hour; 3/day", key="code:{user}", match="POST /account/codes"),
        Rule("price", "2/hour", key="price:{user}:{id}", match="POST /admin/prices/{id}"),
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
        Rule("subscribe", QUOTAS["mail"], key="subscribe:{user}", match="POST /v1/news/letters/subscribe"),
        Rule("archive", "3/hour", key="archive:{user}:{year}", match="GET /v1/news/letters/archive/{year}"),
        Rule("archives", "2/hour", key="archives:{partner}:{year}", match="GET /v1/news/letters/archive/{year}"),
    ],
    exempt=["/health", "/admin/users"],
    limits={"report:pro:*": "6/hour"},
)


async def parts() -> Any:
    for number in range(3):
        yield f"{number}\n"


def add_pages(app: FastAPI) -> None:
    """Pages that have the default limits, each by itself."""

    @app.get("/")
    def home(request: Request) -> dict[str, str]:
        return {"shop": "open"}

    @app.get("/about")
    def about(request: Request) -> PlainTextResponse:
        return PlainTextResponse("a shop")

    @app.get("/old")
    def old(request: Request) -> RedirectResponse:
        return RedirectResponse("/about")

    @app.get("/health")
    def health(request: Request) -> dict[str, bool]:
        return {"well": True}


def catalog() -> APIRouter:
    """Products: a limit for each of them, and a search."""
    router = APIRouter(prefix="/products")

    @router.get("/search")
    def search(request: Request, q: str = "") -> list[int]:
        return [number for number, product in PRODUCTS.items() if q in str(product["name"])]

    @router.get("/{id}")
    def product(request: Request, id: int) -> dict[str, Any]:  # noqa: A002
        if id not in PRODUCTS:
            raise HTTPException(404, "no such product")
        return PRODUCTS[id]

    @router.get("/{id}/reviews")
    def reviews(request: Request, id: int) -> list[str]:  # noqa: A002
        return [f"review of {id}"]

    @router.post("/{id}/reviews")
    def review(request: Request, id: int, review: Review, user: User) -> dict[str, Any]:  # noqa: A002
        return {"product": id, "by": user, "stars": review.stars}

    return router


def carts() -> APIRouter:
    """Carts: all that write share a limit."""
    router = APIRouter(prefix="/cart")

    @router.get("")
    def cart(request: Request, user: User) -> dict[str, str]:
        return {"of": user}

    @router.post("/lines")
    def add(request: Request, line: Line, user: User) -> dict[str, int]:
        return {"product": line.product, "number": line.number}

    @router.delete("/lines")
    def clear(request: Request, user: User) -> dict[str, int]:
        return {"number": 0}

    @router.api_route("/coupon", methods=["GET", "POST"])
    def coupon(request: Request) -> dict[str, str]:
        return {"coupon": request.method}

    return router


def orders() -> APIRouter:
    """Orders: a checkout that is dear, and a list that streams."""
    router = APIRouter(prefix="/orders")

    @router.post("/checkout")
    def checkout(request: Request, user: User) -> dict[str, str]:
        return {"order": user}

    @router.get("/export")
    async def export(request: Request) -> StreamingResponse:
        return StreamingResponse(parts(), media_type="text/plain")

    @router.get("/report")
    def report(request: Request) -> dict[str, str]:
        return {"report": by_user(request)}

    return router


def accounts() -> APIRouter:
    """Accounts: logins by user, and partners by their own key."""
    router = APIRouter(prefix="/account")

    @router.post("/login")
    def login(request: Request, credentials: Credentials) -> dict[str, str]:
        if credentials.password != "right":
            raise HTTPException(401, "wrong password")
        return {"welcome": credentials.user}

    @router.get("/partner")
    def partner(request: Request) -> dict[str, str]:
        return {"partner": by_partner(request)}

    @router.post("/codes")
    def code(request: Request) -> dict[str, str]:
        return {"code": "sent"}

    return router


def admin() -> APIRouter:
    """What staff does is not limited."""
    router = APIRouter(prefix="/admin")

    @router.get("/users")
    def users(request: Request, user: User) -> list[str]:
        if user not in STAFF:
            raise HTTPException(403, "staff alone")
        return sorted(PLANS)

    @router.post("/prices/{id}")
    def price(request: Request, id: int, user: User) -> dict[str, int]:  # noqa: A002
        return {"id": id}

    return router


def media() -> APIRouter:
    """Pictures: what they cost, and for whom."""
    router = APIRouter(prefix="/media")

    @router.post("/pictures")
    async def picture(request: Request) -> dict[str, int]:
        return {"size": size_of(request)}

    @router.get("/thumbnails/{name:path}")
    def thumbnail(request: Request, name: str) -> dict[str, str]:
        return {"name": name}

    @router.post("/pictures/{id}/tags")
    async def tag(request: Request, id: int) -> dict[str, int]:  # noqa: A002
        return {"tagged": id}

    @router.delete("/pictures/{id}/tags")
    async def untag(request: Request, id: int) -> dict[str, int]:  # noqa: A002
        return {"untagged": id}

    return router


def add_news(app: FastAPI) -> None:
    """News: below two prefixes, and on a socket that nothing limits."""
    news = APIRouter(prefix="/news")
    letters = APIRouter()

    @news.get("/latest")
    async def latest(request: Request) -> list[str]:
        return ["open"]

    @letters.post("/subscribe")
    def subscribe(request: Request, user: User) -> dict[str, str]:
        return {"subscribed": user}

    @letters.get("/archive/{year}")
    def archive(request: Request, year: int) -> dict[str, int]:
        return {"year": year}

    @app.websocket("/news/live")
    async def live(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("open")
        await websocket.close()

    news.include_router(letters, prefix="/letters")
    app.include_router(news, prefix="/v1")


def build(url: str) -> FastAPI:
    """Return the shop."""
    app = FastAPI()
    add_rate_limits(app, url, RULES, identify=who, on_rejected=refused, headers="legacy", checks=False)
    add_pages(app)
    add_news(app)
    for router in (catalog, carts, orders, accounts, admin, media):
        app.include_router(router())
    return app
