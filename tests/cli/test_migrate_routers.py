"""Where `migrate` finds the prefixes of routers: in all files that it reads, and nowhere else."""

from pathlib import Path

from typer.testing import CliRunner, Result

from batchlimit.cli.app import app
from batchlimit.rules import Rules

FILES = {
    "shop/main.py": """
from shop.api import api
from shop.routers import auth, health
from .routers.users import router
app = FastAPI()
app.include_router(auth.router, prefix="/auth")
app.include_router(api, prefix="/v1")
api.include_router(router, prefix="/users")
app.include_router(health.router, prefix=settings.PREFIX)
""",
    "shop/api.py": """
from .routers.items import again as items
api = APIRouter(prefix="/api")
api.include_router(items)
api.include_router(items, prefix="/old")
""",
    "shop/routers/__init__.py": "",
    "shop/routers/again.py": "",
    "shop/routers/items.py": "from .made import router as again",
    "shop/routers/made.py": """
router = APIRouter(prefix="/items")
@router.get("/{id:int}")
@limiter.limit("1/hour")
def item(request, id): ...
""",
    "shop/routers/auth.py": """
router = APIRouter()
@router.post("/login")
@limiter.limit("2/hour")
def login(request): ...
""",
    "shop/routers/users.py": """
router = APIRouter()
@router.get("")
@limiter.limit("3/hour")
def users(request): ...
""",
    "shop/routers/health.py": """
router = APIRouter()
@router.get("/health")
@limiter.limit("4/hour")
def health(request): ...
""",
}


def migrated(folder: Path) -> Result:
    return CliRunner().invoke(app, ["migrate", str(folder)])


def test_a_router_has_the_prefixes_below_which_other_files_include_it(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = migrated(tmp_path)
    assert {rule.name: rule.match for rule in Rules.loads(done.stdout, format="toml")} == {
        "item": ("GET /v1/api/items/{id}", "GET /v1/api/old/items/{id}"),
        "login": ("POST /auth/login",),
        "users": ("GET /v1/api/users",),
        "health": ("GET /health",),
    }
    (told,) = [line for line in done.stderr.splitlines() if "below a prefix" in line]
    assert told.startswith(f"{tmp_path}/shop/routers/health.py:3: router may be included below a prefix")


def test_the_prefix_of_a_registration_replaces_that_of_a_blueprint(tmp_path: Path) -> None:
    text = """
blog = Blueprint("blog", __name__, url_prefix="/blog")
inner = Blueprint("inner", __name__, url_prefix="/inner")
alone = Blueprint("alone", __name__)

def create_app():
    blog.register_blueprint(inner)
    app.register_blueprint(blog, url_prefix="/news")

@blog.route("/<int:id>")
@limiter.limit("5/hour")
def post(id): ...

@inner.route("/all")
@limiter.limit("6/hour")
def all(): ...

@limiter.request_filter
def internal(): ...
"""
    (tmp_path / "app.py").write_text(text, encoding="utf-8")
    done = migrated(tmp_path)
    assert [rule.match for rule in Rules.loads(done.stdout, format="toml")] == [
        ("GET /news/{id}",),
        ("GET /news/inner/all",),
    ]
    assert (
        done.stderr
        == f"{tmp_path}/app.py:19: internal exempts requests: add it to exempt, and pass functions={{...}}\n"
    )


def test_routers_that_include_each_other_have_no_prefix(tmp_path: Path) -> None:
    text = """
one = APIRouter()
two = APIRouter()
one.include_router(two, prefix="/two")
two.include_router(one, prefix="/one")

@one.get("/a")
@limiter.limit("5/hour")
def a(request): ...
"""
    (tmp_path / "app.py").write_text(text, encoding="utf-8")
    done = migrated(tmp_path)
    assert [rule.match for rule in Rules.loads(done.stdout, format="toml")] == [("GET /a",)]
    assert "one may be included below a prefix" in done.stderr


IMPORTED = {
    "shop/__init__.py": """
app = create_app()
from shop.auth import bp as auth
app.register_blueprint(auth, url_prefix="/auth")
""",
    "shop/auth/__init__.py": """
bp = Blueprint("auth", __name__)
from shop.auth import routes
""",
    "shop/auth/routes.py": """
from shop import app
from shop.auth import bp
from elsewhere import router
@bp.post("/login")
@limiter.limit("1/hour")
def login(): ...
@app.route("/home")
@limiter.limit("2/hour")
def home(): ...
@router.get("/far")
@limiter.limit("3/hour")
def far(): ...
""",
    "shop/typed.py": """
typed: APIRouter = APIRouter(prefix="/typed")
own = UsersRouter(prefix=settings.PREFIX)
app.include_router(typed, prefix="/v1")
app.include_router(own, prefix="/v1")
class Users:
    router = APIRouter(prefix="/users")
@typed.get("/a")
@limiter.limit("4/hour")
def of_typed(request): ...
@own.get("/b")
@limiter.limit("5/hour")
def of_own(request): ...
@Users.router.get("/c")
@limiter.limit("6/hour")
def of_class(request): ...
@app.get("/files/{name:path}/meta")
@limiter.limit("7/hour")
def meta(request): ...
""",
}


def test_a_router_that_a_file_imports_or_makes_in_another_way_has_its_prefix_or_is_told(tmp_path: Path) -> None:
    for name, text in IMPORTED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = migrated(tmp_path)
    assert {rule.name: rule.match for rule in Rules.loads(done.stdout, format="toml")} == {
        "login": ("POST /auth/login",),
        "home": ("GET /home",),
        "far": ("GET /far",),
        "of_typed": ("GET /v1/typed/a",),
        "of_class": ("GET /c",),
    }
    below = "may be included below a prefix, which is not seen: check the match of each of its routes"
    assert [line.removeprefix(f"{tmp_path}/shop/") for line in done.stderr.splitlines()] == [
        f"auth/routes.py:11: router {below}",
        "typed.py:11: own has no one prefix that is written here: add the path to match",
        "typed.py:13: of_own has a limit, and no route that is written here: add its path as match",
        f"typed.py:14: Users.router {below}",
        "typed.py:17: no pattern says /files/{name:path}/meta: add the nearest to match, with '/*' at its end",
        "typed.py:19: meta has a limit, and no route that is written here: add its path as match",
    ]
