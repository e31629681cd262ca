"""What `migrate` makes of programs with slowapi and flask-limiter, and what it says that it cannot read."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batchlimit.cli.app import app
from batchlimit.rules import Rule, Rules

TREE = Path(__file__).parents[2]
PAGE = (TREE / "docs" / "how-to" / "moving.md").read_text("utf-8")
SHOP_OF_300_LINES = TREE / "tests" / "integrations" / "moved" / "with_slowapi.py"
ROUTERS = """
limiter = Limiter(get_remote_address, default_limits=["200/day", "50 per hour"], application_limits=["1000/day"])
router = APIRouter(prefix="/v1")
@router.get("/items/{id:int}")
@limiter.limit("10/minute;100/day", override_defaults=False)
async def item(request): ...
@router.api_route("/both", methods=["GET", "POST"])
@limiter.limit("9/minute", methods=["POST"])
async def both(request): ...
@router.post("/a")
@limiter.shared_limit("5/minute", scope="writes")
async def a(request): ...
@router.put("/b/{rest:path}")
@limiter.shared_limit("5/minute", scope="writes")
async def b(request): ...
"""
SHOP = """
limiter = Limiter(key_func=by_account, app=app, storage_uri=URL, strategy="moving-window", unknown=1)
shop = Blueprint("shop", __name__)
@shop.route("/carts/<uuid:cart>/<path:rest>", methods=("POST",))
@limiter.limit(quota_of)
@limiter.limit("3/month", key_func=other, deduct_when=failed, cost=size)
def cart(cart, rest): ...
@limiter.limit("1/second")
def elsewhere(): ...
"""


def migrated(folder: Path, text: str = "", name: str = "app.py") -> Result:
    if text:
        (folder / name).write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, ["migrate", str(folder)])


DEFAULT = 'limiter = Limiter(get_remote_address, default_limits=["100/day"])\n'


def view(name: str, routes: str, *limits: str) -> str:
    """Write a view: its routes, as "get /a" or as called, and below them its limits, as "5/minute" or as called."""
    called = [routes] if routes[0] == "@" else routes.split(", ")
    written = [each if each[0] == "@" else '@app.{}("{}")'.format(*each.split()) for each in called]
    written += [f'@limiter.limit("{each}")' if each[0].isdigit() else f"@{each}" for each in limits]
    return "\n".join([*written, f"def {name}(request): ...", ""])


def shared(terms: str) -> str:
    return f'limiter.shared_limit("5/minute", {terms})'


def test_migrate_prints_rules_alone_and_no_empty_line_where_there_are_none(tmp_path: Path) -> None:
    assert migrated(tmp_path, "limit = 1").stdout == ""
    only_exempt = '@app.get("/health")\n@limiter.exempt\ndef health(): ...'
    done = migrated(tmp_path, only_exempt)
    assert (done.exit_code, done.stdout) == (1, 'exempt = ["GET /health"]\n')
    assert migrated(tmp_path, ROUTERS).stdout.splitlines()[-1] == 'replaces = "default"'


def moved(folder: Path, text: str) -> tuple[dict[str, Rule], list[str]]:
    """The rules of a program by name, and what is told of it, each by its line."""
    done = migrated(folder, text)
    told = [line.removeprefix(f"{folder}/app.py:") for line in done.stderr.splitlines()]
    return {rule.name: rule for rule in Rules.loads(done.stdout, format="toml")}, told


def terms(rule: Rule) -> tuple[object, ...]:
    return rule.name, rule.quota, rule.key, rule.match, rule.cost, rule.replaces


def block(number: int) -> str:
    return PAGE.split("```python\n")[number].split("```")[0]


def test_the_application_of_the_page_gets_the_rules_of_the_page(tmp_path: Path) -> None:
    done = migrated(tmp_path, block(1))
    ours: dict[str, object] = {}
    exec(block(2).split("app = ")[0], ours)
    wanted = ours["rules"]
    assert isinstance(wanted, Rules)
    assert [terms(rule) for rule in Rules.loads(done.stdout, format="toml")] == [terms(rule) for rule in wanted]
    assert 'exempt = ["GET /health"]' in done.stdout
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f'{tmp_path}/app.py:7: keys have {{user}}: let identify return {{"user": ...}} as this key_func does'
    ]


@pytest.mark.parametrize(
    "problem",
    [
        "app.py:2: strategy: a bucket holds; write '5 within 1h' for a strict window",
        "app.py:2: unknown is not moved",
        "app.py:2: keys have {user}",
        "app.py:5: this limit is no text that stands here: limits by plan, or an override, may do it",
        "app.py:6: quota '3/month': expected a unit",
        "app.py:6: key_func: the rule's key has a field of its own: let identify tell it",
        "app.py:6: deduct_when: write charge = [statuses]",
        "app.py:6: its cost is a function",
        "elsewhere has a limit, and no route that is written here: add its path as match",
        "broken.py: it cannot be read",
        "deep.py: it cannot be read",
    ],
)
def test_what_the_source_does_not_say_is_told_with_its_place(tmp_path: Path, problem: str) -> None:
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    (tmp_path / "deep.py").write_text("+".join("1" * 20_000), encoding="utf-8")
    done = migrated(tmp_path, SHOP)
    assert done.exit_code == 1
    assert problem in done.stderr


def test_nothing_is_run_and_a_program_of_which_all_is_read_has_status_0(tmp_path: Path) -> None:
    text = (
        "import no_such_module\nlimiter = Limiter(get_remote_address, default_limits=['9/hour'])\nraise SystemExit(7)\n"
    )
    done = migrated(tmp_path, text)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [str(rule.quota) for rule in Rules.loads(done.stdout, format="toml")] == ["9/h"]


PROGRAMS = {
    # the program; the rules that it becomes, and what is told of it, each by its line
    "routers, shared limits, methods and defaults": (
        ROUTERS,
        """
application 1000/d, application:{ip}, *
default 200/d; 50/h, default:{ip}, *
item 10/m; 100/d, item:{ip}, GET /v1/items/{id}
both 9/m, both:{ip}, POST /v1/both, replaces default
writes 5/m, writes:{ip}, POST /v1/a, PUT /v1/b/*, replaces default
4: router may be included below a prefix, which is not seen: check the match of each of its routes
5: item: slowapi counts each URL by itself, this rule all of them together: write {id} into its key for that
""",
    ),
    "limits that are applied in another way": (
        'twice = again = limiter.limit("2/hour")\nshared = limiter.shared_limit("6/hour", scope="z")\n'
        + view("a", "get /a", "twice")
        + 'app.add_api_route("/x", limiter.limit("9/hour")(x))\napp.mount("/sub", sub)\n@app.get(PATH)\n'
        + view("d", "get /one", 'limiter.limit("4/minute", methods=("POST",))'),
        """
d 4/m, d:{ip}, POST /one
8: this path is no text that stands here: add it to match
1: limit is applied in a way that is not read: write its rule by hand
2: shared_limit is applied in a way that is not read: write its rule by hand
7: paths of a mounted application are below a prefix, which is not seen: check their match
6: limit is applied in a way that is not read: write its rule by hand
""",
    ),
    "constants of a module, and a name that changes": (
        'DEFAULTS: list[str] = ["100/day"]\nSEARCH = "5/minute"\nROOT = "/v1"\nWRITES = ("POST", "PUT")\n'
        'CHANGED = "1/day"\nCHANGED = "2/day"\nlimiter = Limiter(get_remote_address, default_limits=DEFAULTS)\n'
        + view("search", '@app.get(ROOT + "/search")', "limiter.limit(SEARCH)")
        + view("write", "@app.api_route(ROOT, methods=WRITES)", "limiter.limit(SEARCH, methods=WRITES)")
        + '@app.get("/changed")\n@limiter.limit(CHANGED)\ndef changed(request, SEARCHED="9/day"): ...\n',
        """
default 100/d, default:{ip}, *
search 5/m, search:{ip}, GET /v1/search, replaces default
write 5/m, write:{ip}, POST,PUT /v1, replaces default
15: this limit is no text that stands here: limits by plan, or an override, may do it
""",
    ),
    "a limit that is read in part, and a path that is not read, have the default as well": (
        DEFAULT
        + view("a", "get /a", "5/minute", "limiter.limit(of_plan)")
        + view("b", "get /b", 'limiter.limit("5/minute", override_defaults=OVERRIDES)')
        + '@app.get(path_of("c"))\n'
        + view("c", "get /c", "5/minute"),
        """
default 100/d, default:{ip}, *
a 5/m, a:{ip}, GET /a
b 5/m, b:{ip}, GET /b
c 5/m, c:{ip}, GET /c, replaces default
4: this limit is no text that stands here: limits by plan, or an override, may do it
5: a is read in part, so its rule does not replace the default limits
8: b is read in part, so its rule does not replace the default limits
9: this path is no text that stands here: add it to match
""",
    ),
    "a cost in a shared limit is that of its route alone": (
        view("a", "post /a", shared('scope="writes"'))
        + view("b", "post /b", shared('scope="writes", cost=2'))
        + view("c", "post /c", shared('scope="writes", cost=2')),
        """
writes 5/m, writes:{ip}, POST /a
writes-2 5/m, writes:{ip}, POST /b, POST /c, cost 2
""",
    ),
    "a path with parameters has one bucket, where slowapi has one for each URL": (
        view("item", "get /items/{id}/{part:path}", "5/minute")
        + view("a", "get /a/{id}", shared('scope="z"'))
        + view("of_flask", "get /b/<id>", "5/minute"),
        """
item 5/m, item:{ip}, GET /items/{id}/*
z 5/m, z:{ip}, GET /a/{id}
of_flask 5/m, of_flask:{ip}, GET /b/{id}
2: item: slowapi counts each URL by itself, this rule all of them together: write {id}, {path} into its key for that
""",
    ),
    "Flask takes the most exact path wherever it stands, and a circle of them is told": (
        view("item", "route /items/<id>", "9/minute")
        + view("late", "route /items/late", "7/minute")
        + view("one", "route /a/x, route /b/<id>", "9/minute")
        + view("two", "route /a/<id>, route /b/y", "7/minute"),
        """
item 9/m, item:{ip}, GET /items/{id}
late 7/m, late:{ip}, GET /items/late, replaces item
one 9/m, one:{ip}, GET /a/x, GET /b/{id}
two 7/m, two:{ip}, GET /a/{id}, GET /b/y, replaces one
10: GET /a/x is charged to two too: write a rule for it with replaces
""",
    ),
    "limits with key functions of their own": (
        DEFAULT
        + view(
            "item",
            "get /item",
            'limiter.limit("100/hour", key_func=user_key)',
            "10/minute",
            'limiter.limit("2/second", key_func=get_remote_address)',
        ),
        """
default 100/d, default:{ip}, *
item-user_key 100/h, item-user_key:{user_key}, GET /item, replaces default
item 10/m, item:{ip}, GET /item, replaces default
item-ip 2/s, item-ip:{ip}, GET /item, replaces default
3: key_func: the rule's key has a field of its own: let identify tell it
5: key_func: the rule's key has a field of its own: let identify tell it
""",
    ),
    "a limit in a variable is that of each route it decorates": (
        'WRITES = "7/minute"\n'
        'shared = limiter.shared_limit(WRITES, scope="s", key_func=get_ipaddr, error_message="no")\n'
        'each: Decorator = limiter.limit("2/hour")\n'
        + view("a", "post /a", "shared")
        + view("b", "post /b", "shared", "each")
        + view("c", "get /c", "each"),
        """
s-ip 7/m, s-ip:{ip}, POST /a, POST /b
b 2/h, b:{ip}, POST /b
c 2/h, c:{ip}, GET /c
2: key_func: the rule's key has a field of its own: let identify tell it
2: error_message: answer by on_rejected
""",
    ),
    "limits in the configuration of an application": (
        'RATELIMIT_META = "9/day"\napp.config["RATELIMIT_DEFAULT"] = "100/hour"\n'
        'app.config.from_mapping(RATELIMIT_APPLICATION="1000/hour", RATELIMIT_STORAGE_URI="memory://")\n'
        'limiter = Limiter(get_remote_address, app=app, default_limits=["5/minute"])\n',
        """
default 5/m, default:{ip}, *
1: RATELIMIT_META sets limits of all routes: write their rule by hand
2: RATELIMIT_DEFAULT sets limits of all routes: write their rule by hand
3: RATELIMIT_APPLICATION sets limits of all routes: write their rule by hand
""",
    ),
    "methods are those of any list, and what is not all there is told": (
        view("a", '@app.api_route("/a", methods={"POST"})', "1/hour")
        + view("b", '@app.api_route("/b", methods=["POST", *MORE])', "2/hour")
        + view("c", '@app.api_route("/c", methods=OTHER)', "3/hour")
        + view("d", '@app.route("/d", methods=("GET", "POST"))', 'limiter.limit("4/hour", methods={"POST"})')
        + view("e", '@app.route("/e", methods=["PUT"])', 'limiter.limit("5/hour", methods=OTHER)'),
        """
a 1/h, a:{ip}, POST /a
d 4/h, d:{ip}, POST /d
e 5/h, e:{ip}, PUT /e
4: its methods are no texts that stand here: add them with the path to match
6: b has a limit, and no route that is written here: add its path as match
7: its methods are no texts that stand here: add them with the path to match
9: c has a limit, and no route that is written here: add its path as match
14: its methods are no texts that stand here: write them into its match
""",
    ),
    "the scope of a shared limit may stand without its name, and one that is no text is told": (
        view("a", "get /a", shared('"reports"'))
        + view("b", "get /b", shared('scope="reports"'))
        + view("c", "get /c", shared("scope=host")),
        """
reports 5/m, reports:{ip}, GET /a, GET /b
c 5/m, c:{ip}, GET /c
8: its scope is no text that stands here: let the rules that share it have one key
""",
    ),
    "what queries and other extensions call limit and exempt": (
        "csrf = CSRFProtect(app)\nguard: Limiter = Limiter(get_remote_address)\n"
        + view("form", "post /hook", "csrf.exempt", 'guard.limit("5/minute")')
        + view("health", "get /health", "guard.exempt")
        + "found = session.query(Item).offset(1).limit(10).all() + query.limit(size)\n"
        "csrf.exempt(blueprint)\nguard.exempt(blueprint)\n",
        """
form 5/m, form:{ip}, POST /hook
12: exempt is applied in a way that is not read: write its rule by hand
""",
    ),
    "the prefix of a registration replaces that of a blueprint": (
        'blog = Blueprint("blog", __name__, url_prefix="/blog")\n'
        'inner = Blueprint("inner", __name__, url_prefix="/inner")\nalone = Blueprint("alone", __name__)\n'
        "def create_app():\n    blog.register_blueprint(inner)\n"
        '    app.register_blueprint(blog, url_prefix="/news")\n'
        + view("post", '@blog.route("/<int:id>")', "5/hour")
        + view("all", '@inner.route("/all")', "6/hour")
        + "@limiter.request_filter\ndef internal(): ...\n",
        """
post 5/h, post:{ip}, GET /news/{id}
all 6/h, all:{ip}, GET /news/inner/all
14: internal exempts requests: add it to exempt, and pass functions={...}
""",
    ),
    "routers that include each other have no prefix": (
        'one = APIRouter()\ntwo = APIRouter()\none.include_router(two, prefix="/two")\n'
        'two.include_router(one, prefix="/one")\n' + view("a", '@one.get("/a")', "5/hour"),
        """
a 5/h, a:{ip}, GET /a
5: one may be included below a prefix, which is not seen: check the match of each of its routes
""",
    ),
    "a router that has several prefixes in one place": (
        'router = APIRouter(prefix="/a")\nrouter = APIRouter(prefix="/b")\n'
        + view("c", '@router.get("/c")', "5/minute"),
        """
3: router has no one prefix that is written here: add the path to match
5: c has a limit, and no route that is written here: add its path as match
""",
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_becomes_rules_and_what_its_source_does_not_say_is_told(tmp_path: Path, program: str) -> None:
    text, expected = PROGRAMS[program]
    done = migrated(tmp_path, text)
    found = list[str]()
    for each in Rules.loads(done.stdout, format="toml") if done.stdout else ():
        cost, replaced = [f"cost {each.cost}"] * (each.cost != 1), " ".join(each.replaces)
        found.append(", ".join([f"{each.name} {each.quota}", each.key, *each.match, *cost]))
        found[-1] += f", replaces {replaced}" if replaced else ""
    told = [line.removeprefix(f"{tmp_path}/app.py:") for line in done.stderr.splitlines()]
    assert found + told == expected.strip().splitlines()


def test_a_path_that_is_not_there_is_no_program_without_limits(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["migrate", str(tmp_path / "nowhere")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "does not exist" in re.sub(r"[\s│]+", " ", done.stderr)  # it may be folded anywhere
    assert "no rules" not in done.stderr
    unread = migrated(tmp_path, "def (")
    assert (unread.exit_code, len(unread.stderr.splitlines())) == (1, 1)
    without = migrated(tmp_path, "print(1)")
    assert (without.exit_code, without.stderr) == (1, "no limit of slowapi or flask-limiter is here\n")


def test_a_more_exact_path_replaces_the_wider_one_that_never_had_its_requests(tmp_path: Path) -> None:
    text = (
        DEFAULT
        + view("search", "get /items/search", "5/minute")
        + view("health", "get /items/health", "limiter.exempt")
    )
    text += (
        view("new", "get /items/new") + view("post", "post /items/all") + view("item", "get /items/{id}", "9/minute")
    )
    text += view("late", "get /items/late", "7/minute") + view("below", "get /items/{id}/{rest:path}", "8/minute")
    found, told = moved(tmp_path, text)
    assert {name: rule.replaces for name, rule in found.items()} == {
        "default": (),
        "search": ("default", "item", "below"),
        "item": ("default", "below"),
        "late": ("default", "below"),
        "below": ("default",),
    }
    assert sorted(line for line in told if "slowapi counts" not in line) == [
        "17: GET /items/late is never reached: GET /items/{id}, above it, takes its requests",
        "9: GET /items/new is charged to below too: write a rule for it with replaces",
        "9: GET /items/new is charged to item too: write a rule for it with replaces",
    ]


def test_a_shop_of_300_lines_has_the_prefix_of_each_router_where_it_is_made() -> None:
    done = CliRunner().invoke(app, ["migrate", str(SHOP_OF_300_LINES)])
    found = {rule.name: rule for rule in Rules.loads(done.stdout, format="toml")}
    assert found["search"].match == ("GET /products/search",)
    assert found["search"].replaces == ("default", "product")
    assert found["writes"].match == ("POST /cart/lines", "DELETE /cart/lines")
    assert (found["checkout"].match, found["checkout"].cost) == (("POST /orders/checkout",), 2)
    assert found["product"].match == ("GET /products/{id}",)
    assert found["archive-by_partner"].match == ("GET /v1/news/letters/archive/{year}",)
    assert found["tags-ByField"].key == "tags-ByField:{ByField}"
    assert len(found) == 17
    assert "with_slowapi.py:179: this limit is no text that stands here" in done.stderr
    assert done.stderr.count("router may be included below a prefix") == 6
    assert "application: slowapi asks it for routes alone that have no limit of their own" in done.stderr
    assert "thumbnail: slowapi counts each URL by itself, this rule all of them together: write {path}" in done.stderr


def test_another_use_of_a_limit_in_a_variable_is_told_with_its_place(tmp_path: Path) -> None:
    text = """
shared = limiter.shared_limit("7/minute", scope="s")
limiter.limit("9/minute")(blueprint)
shared(blueprint)
@app.get("/a")
@shared
def a(request): ...
class View(MethodView):
    decorators = [shared]
"""
    (tmp_path / "other.py").write_text(
        """
from app import shared as common
import app as limits
@app.get("/c")
@limits.shared
def c(request): ...
""",
        encoding="utf-8",
    )
    done = migrated(tmp_path, text)
    assert [rule.match for rule in Rules.loads(done.stdout, format="toml")] == [("GET /a",)]
    told = [line.removeprefix(f"{tmp_path}/") for line in done.stderr.splitlines()]
    assert told == [
        "app.py:3: limit is applied in a way that is not read: write its rule by hand",
        "app.py:4: shared_limit is applied in a way that is not read: write its rule by hand",
        "app.py:9: shared_limit is applied in a way that is not read: write its rule by hand",
        "other.py:6: c has a limit that was made elsewhere: write its rule by hand",
        "other.py:2: shared is a limit that was made elsewhere: write its rule by hand",
    ]


ONE = 'limiter = Limiter(key_func=get_remote_address, default_limits=["100/minute", "1000/hour"])\n'
TWO = 'limiter = Limiter(by_account, default_limits=["200 per day", "50 per hour"], application_limits=["9/day"])\n'
PLAIN = "limiter = Limiter(get_ipaddr)\n"


@pytest.mark.parametrize(
    ("one", "two", "taken", "told"),
    [
        (ONE, TWO, ["100/m; 1000/h"], ("b.py", "a.py")),
        (TWO, ONE, ["9/d", "200/d; 50/h"], ("b.py", "a.py")),
        (PLAIN, ONE, ["100/m; 1000/h"], ("a.py", "b.py")),
        (ONE, PLAIN, ["100/m; 1000/h"], ("b.py", "a.py")),
        (ONE, ONE, ["100/m; 1000/h"], None),
    ],
)
def test_default_limits_of_two_programs_stay_apart(tmp_path: Path, one: str, two: str, taken: Any, told: Any) -> None:
    (tmp_path / "a.py").write_text("from slowapi import Limiter\n" + one, encoding="utf-8")
    done = migrated(tmp_path, "from flask_limiter import Limiter\n" + two, "b.py")
    rules = Rules.loads(done.stdout, format="toml")
    assert [str(rule.quota) for rule in rules] == taken
    assert {rule.key.split(":")[1] for rule in rules} == {"{user}" if one == TWO else "{ip}"}
    remarks = [line for line in done.stderr.splitlines() if "by itself" in line and "programs" in line]
    assert remarks == [
        f"{tmp_path}/{other}:2: its default limits or key_func are not those of {tmp_path}/{first}:2, which are taken:"
        " where they are of two programs, run migrate on each by itself"
        for other, first in ([told] if told else [])
    ]


def test_limiters_that_take_callers_by_other_functions_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("limiter = Limiter(by_account)\n", encoding="utf-8")
    done = migrated(tmp_path, "limiter = Limiter(by_session, default_limits=None)\n", "b.py")
    assert f"{tmp_path}/b.py:1: its default limits or key_func are not those of {tmp_path}/a.py:1" in done.stderr


@pytest.mark.parametrize("folder", ["venv/lib/python3.11/site-packages/slowapi", ".venv/slowapi", ".git"])
def test_what_is_installed_in_a_folder_or_hidden_there_is_no_part_of_its_program(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "extension.py").write_text("def (", encoding="utf-8")
    text = "limiter = Limiter(get_remote_address, default_limits=['9/hour'])"
    assert (migrated(tmp_path, text).exit_code, migrated(tmp_path, text).stderr) == (0, "")


# Where the prefixes of routers are found: in all files that it reads, and nowhere else
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
