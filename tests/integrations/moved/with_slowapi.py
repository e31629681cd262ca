"""A shop behind slowapi, as its users write one: `build(url)` returns the application."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from pydantic import BaseModel
from slowapi import Limiter
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware

PRODUCTS = {number: {"id": number, "name": f"product {number}", "price": number * 100} for number in range(1, 21)}
PLANS = {"ann": "free", "bob": "pro", "eve": "free", "root": "pro"}
STAFF = {"root"}
MESSAGES = {"login": "too many passwords", "report": "too many reports"}
WRITES = "6/hour"
SEARCH = "5/hour;8/day"
QUOTAS = {"news": "3/hour"}


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


def by_plan(request: Request) -> str:
    user = by_user(request)
    return f"{PLANS.get(user, 'free')}:{user}"


def of_plan(key: str) -> str:
    return "6/hour" if key.startswith("pro:") else "2/hour"


def news_quota() -> str:
    return QUOTAS["news"]


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


def refused(request: Request, error: Exception) -> JSONResponse:
    detail = getattr(error, "detail", "")
    known = detail in MESSAGES.values()
    return JSONResponse({"error": detail if known else "slow down"}, status_code=429)


async def parts() -> Any:
    for number in range(3):
        yield f"{number}\n"


def add_pages(app: FastAPI, limiter: Limiter) -> None:
    """Pages that have the default limits, each by itself."""

    @app.get("/")
    def home(request: Request) -> dict[str, str]:
        return {"shop": "open"}

    @app.get("/old")
    def old(request: Request) -> RedirectResponse:
        return RedirectResponse("/")

    @app.get("/health")
    @limiter.exempt
    def health(request: Request) -> dict[str, bool]:
        return {"well": True}


def catalog(limiter: Limiter) -> APIRouter:
    """Products: a limit for each of them, and a search."""
    router = APIRouter(prefix="/products")

    @router.get("/search")
    @limiter.limit(SEARCH)
    def search(request: Request, response: Response, q: str = "") -> list[int]:
        return [number for number, product in PRODUCTS.items() if q in str(product["name"])]

    @router.get("/{id}")
    @limiter.limit("3/hour")
    def product(request: Request, response: Response, id: int) -> dict[str, Any]:  # noqa: A002
        if id not in PRODUCTS:
            raise HTTPException(404, "no such product")
        return PRODUCTS[id]

    @router.post("/{id}/reviews")
    @limiter.limit("2/hour")
    def review(request: Request, response: Response, id: int, review: Review, user: User) -> dict[str, Any]:  # noqa: A002
        return {"product": id, "by": user, "stars": review.stars}

    return router


def carts(limiter: Limiter) -> APIRouter:
    """Carts: all that write share a limit."""
    router = APIRouter(prefix="/cart")

    @router.post("/lines")
    @limiter.shared_limit(WRITES, scope="writes")
    def add(request: Request, response: Response, line: Line, user: User) -> dict[str, int]:
        return {"product": line.product, "number": line.number}

    @router.delete("/lines")
    @limiter.shared_limit(WRITES, scope="writes")
    def clear(request: Request, response: Response, user: User) -> dict[str, int]:
        return {"number": 0}

    @router.api_route("/coupon", methods=["GET", "POST"])
    @limiter.limit("2/hour", methods=["POST"])
    def coupon(request: Request, response: Response) -> dict[str, str]:
        return {"coupon": request.method}

    return router


def orders(limiter: Limiter) -> APIRouter:
    """Orders: a checkout that is dear, and a list that streams."""
    router = APIRouter(prefix="/orders")

    @router.post("/checkout")
    @limiter.limit("6/hour", cost=2)
    def checkout(request: Request, response: Response, user: User) -> dict[str, str]:
        return {"order": user}

    @router.get("/export")
    @limiter.limit("2/hour")
    async def export(request: Request) -> StreamingResponse:
        return StreamingResponse(parts(), media_type="text/plain")

    @router.get("/report")
    @limiter.limit(of_plan, key_func=by_plan, error_message=MESSAGES["report"])
    def report(request: Request, response: Response) -> dict[str, str]:
        return {"report": by_user(request)}

    return router


def accounts(limiter: Limiter) -> APIRouter:
    """Accounts: logins by user, and partners by their own key."""
    router = APIRouter(prefix="/account")

    @router.post("/login")
    @limiter.limit("3/hour", error_message=MESSAGES["login"])
    def login(request: Request, response: Response, credentials: Credentials) -> dict[str, str]:
        if credentials.password != "right":
            raise HTTPException(401, "wrong password")
        return {"welcome": credentials.user}

    @router.get("/partner")
    @limiter.limit("2/hour", key_func=by_partner)
    def partner(request: Request, response: Response) -> dict[str, str]:
        return {"partner": by_partner(request)}

    @router.post("/codes")
    @limiter.limit("2/hour")
    @limiter.limit("3/day")
    def code(request: Request, response: Response) -> dict[str, str]:
        return {"code": "sent"}

    return router


def admin(limiter: Limiter) -> APIRouter:
    """What staff does is not limited."""
    router = APIRouter(prefix="/admin")

    @router.get("/users")
    @limiter.exempt
    def users(request: Request, user: User) -> list[str]:
        if user not in STAFF:
            raise HTTPException(403, "staff alone")
        return sorted(PLANS)

    return router


def media(limiter: Limiter) -> APIRouter:
    """Pictures: what they cost, and for whom."""
    router = APIRouter(prefix="/media")

    @router.post("/pictures")
    @limiter.limit("10/hour", cost=size_of)
    async def picture(request: Request, response: Response) -> dict[str, int]:
        return {"size": size_of(request)}

    @router.get("/thumbnails/{name:path}")
    @limiter.limit("3/hour", exempt_when=is_staff)
    def thumbnail(request: Request, response: Response, name: str) -> dict[str, str]:
        return {"name": name}

    @router.post("/pictures/{id}/tags")
    @limiter.shared_limit("4/hour", scope="tags", key_func=ByField("x-partner"))
    async def tag(request: Request, response: Response, id: int) -> dict[str, int]:  # noqa: A002
        return {"tagged": id}

    @router.delete("/pictures/{id}/tags")
    @limiter.shared_limit("4/hour", scope="tags", key_func=ByField("x-partner"))
    async def untag(request: Request, response: Response, id: int) -> dict[str, int]:  # noqa: A002
        return {"untagged": id}

    return router


def add_news(app: FastAPI, limiter: Limiter) -> None:
    """News: below two prefixes, and on a socket that nothing limits."""
    news = APIRouter(prefix="/news")
    letters = APIRouter()

    @news.get("/latest")
    @limiter.limit(news_quota)
    async def latest(request: Request, response: Response) -> list[str]:
        return ["open"]

    @letters.get("/archive/{year}")
    @limiter.limit("3/hour")
    @limiter.limit("2/hour", key_func=by_partner)
    def archive(request: Request, response: Response, year: int) -> dict[str, int]:
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
    limiter = Limiter(
        key_func=by_user,
        default_limits=["4/hour"],
        application_limits=["9/hour"],
        headers_enabled=True,
        storage_uri=url,
    )
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, refused)
    app.add_middleware(SlowAPIMiddleware)
    build_routes(app, limiter)
    return app


def build_routes(app: FastAPI, limiter: Any) -> None:
    add_pages(app, limiter)
    add_news(app, limiter)
    for router in (catalog, carts, orders, accounts, admin, media):
        app.include_router(router(limiter))
