"""What `migrate` makes of programs with slowapi and flask-limiter, and what it says that it cannot read."""

import re
from pathlib import Path

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


def migrated(folder: Path, text: str, name: str = "app.py") -> Result:
    (folder / name).write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, ["migrate", str(folder)])


def test_it_prints_rules_alone_and_no_empty_line_where_there_are_none(tmp_path: Path) -> None:
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


def test_routers_shared_limits_methods_and_defaults_become_rules(tmp_path: Path) -> None:
    found, told = moved(tmp_path, ROUTERS)
    assert {name: (str(rule.quota), rule.match) for name, rule in found.items()} == {
        "application": ("1000/d", ("*",)),
        "default": ("200/d; 50/h", ("*",)),
        "item": ("10/m; 100/d", ("GET /v1/items/{id}",)),
        "both": ("9/m", ("POST /v1/both",)),
        "writes": ("5/m", ("POST /v1/a", "PUT /v1/b/*")),
    }
    assert [rule.name for rule in found.values() if rule.replaces] == ["both", "writes"]
    assert {rule.key for rule in found.values()} == {f"{name}:{{ip}}" for name in found}
    assert [line for line in told if "below a prefix" in line] == [
        "5: router may be included below a prefix, which is not seen: check the match of each of its routes"
    ]


@pytest.mark.parametrize(
    "problem",
    [
        "app.py:2: strategy: a bucket holds; write '5 within 1h' for a strict window",
        "app.py:2: unknown is not moved",
        "app.py:2: keys have {user}",
        "app.py:6: this limit is no text that stands here: limits by plan, or an override, may do it",
        "app.py:7: quota '3/month': expected a unit",
        "app.py:7: key_func: the rule's key has a field of its own: let identify tell it",
        "app.py:7: deduct_when: write charge = [statuses]",
        "app.py:7: its cost is a function",
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


def test_limits_that_are_applied_in_another_way_are_told(tmp_path: Path) -> None:
    text = """
twice = again = limiter.limit("2/hour")
shared = limiter.shared_limit("6/hour", scope="z")
@app.get("/a")
@twice
def a(request): ...
app.add_api_route("/x", limiter.limit("9/hour")(x))
app.mount("/sub", sub)
@app.get(PATH)
@app.get("/one")
@limiter.limit("4/minute", methods=("POST",))
def d(request): ...
"""
    found, told = moved(tmp_path, text)
    assert {line.split(":")[0] for line in told} == {"2", "3", "7", "8", "9"}
    assert [rule.match for rule in found.values()] == [("POST /one",)]


def test_constants_of_a_module_are_read_and_names_that_change_are_not(tmp_path: Path) -> None:
    text = """
DEFAULTS: list[str] = ["100/day"]
SEARCH = "5/minute"
ROOT = "/v1"
WRITES = ("POST", "PUT")
CHANGED = "1/day"
CHANGED = "2/day"
limiter = Limiter(get_remote_address, default_limits=DEFAULTS)

@app.get(ROOT + "/search")
@limiter.limit(SEARCH)
def search(request): ...

@app.api_route(ROOT, methods=WRITES)
@limiter.limit(SEARCH, methods=WRITES)
def write(request): ...

@app.get("/changed")
@limiter.limit(CHANGED)
def changed(request, SEARCHED="9/day"): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: (str(rule.quota), rule.match) for name, rule in found.items()} == {
        "default": ("100/d", ("*",)),
        "search": ("5/m", ("GET /v1/search",)),
        "write": ("5/m", ("POST,PUT /v1",)),
    }
    assert [line.split(":")[0] for line in told] == ["19"]


def test_a_limit_that_is_read_in_part_does_not_replace_the_default(tmp_path: Path) -> None:
    text = """
limiter = Limiter(get_remote_address, default_limits=["100/day"])

@app.get("/a")
@limiter.limit("5/minute")
@limiter.limit(of_plan)
def a(request): ...

@app.get("/b")
@limiter.limit("5/minute", override_defaults=OVERRIDES)
def b(request): ...

@app.get(path_of("c"))
@app.get("/c")
@limiter.limit("5/minute")
def c(request): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.replaces for name, rule in found.items()} == {"default": (), "a": (), "b": (), "c": ("default",)}
    in_part = "is read in part, so its rule does not replace the default limits"
    # Where the path of c is not read, the default limits hold.
    assert [line for line in told if "in part" in line] == [f"7: a {in_part}", f"11: b {in_part}"]


def test_a_cost_in_a_shared_limit_is_that_of_its_route_alone(tmp_path: Path) -> None:
    text = """
@app.post("/a")
@limiter.shared_limit("5/minute", scope="writes")
def a(): ...

@app.post("/b")
@limiter.shared_limit("5/minute", scope="writes", cost=2)
def b(): ...

@app.post("/c")
@limiter.shared_limit("5/minute", scope="writes", cost=2)
def c(): ...
"""
    found, told = moved(tmp_path, text)
    assert [(rule.key, rule.match, rule.cost) for rule in found.values()] == [
        ("writes:{ip}", ("POST /a",), 1),
        ("writes:{ip}", ("POST /b", "POST /c"), 2),
    ]
    assert told == []


def test_a_path_with_parameters_has_one_bucket_where_slowapi_has_one_for_each_url(tmp_path: Path) -> None:
    text = """
@app.get("/items/{id}/{part:path}")
@limiter.limit("5/minute")
def item(request): ...

@app.get("/a/{id}")
@limiter.shared_limit("5/minute", scope="z")
def a(request): ...

@app.get("/b/<id>")
@limiter.limit("5/minute")
def of_flask(id): ...
"""
    assert moved(tmp_path, text)[1] == [
        "3: item: slowapi counts each URL by itself, this rule all of them together: write {id}, {path} into its key"
        " for that"
    ]


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
    text = """
limiter = Limiter(get_remote_address, default_limits=["100/day"])

@app.get("/items/search")
@limiter.limit("5/minute")
def search(request): ...

@app.get("/items/health")
@limiter.exempt
def health(request): ...

@app.get("/items/new")
def new(request): ...

@app.post("/items/all")
def post(request): ...

@app.get("/items/{id}")
@limiter.limit("9/minute")
def item(request, id): ...

@app.get("/items/late")
@limiter.limit("7/minute")
def late(request): ...

@app.get("/items/{id}/{rest:path}")
@limiter.limit("8/minute")
def below(request, id): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.replaces for name, rule in found.items()} == {
        "default": (),
        "search": ("default", "item", "below"),
        "item": ("default", "below"),
        "late": ("default", "below"),
        "below": ("default",),
    }
    assert sorted(line for line in told if "slowapi counts" not in line) == [
        "13: GET /items/new is charged to below too: write a rule for it with replaces",
        "13: GET /items/new is charged to item too: write a rule for it with replaces",
        "24: GET /items/late is never reached: GET /items/{id}, above it, takes its requests",
    ]


def test_flask_takes_the_most_exact_path_wherever_it_stands_and_a_circle_of_them_is_told(tmp_path: Path) -> None:
    text = """
@app.route("/items/<id>")
@limiter.limit("9/minute")
def item(id): ...

@app.route("/items/late")
@limiter.limit("7/minute")
def late(): ...

@app.route("/a/x")
@app.route("/b/<id>")
@limiter.limit("9/minute")
def one(id=0): ...

@app.route("/a/<id>")
@app.route("/b/y")
@limiter.limit("7/minute")
def two(id=0): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.replaces for name, rule in found.items()} == {
        "item": (), "late": ("item",), "one": (), "two": ("one",),
    }  # fmt: skip
    assert told == ["13: GET /a/x is charged to two too: write a rule for it with replaces"]


def test_a_shop_of_300_lines_has_the_prefix_of_each_router_where_it_is_made() -> None:
    done = CliRunner().invoke(app, ["migrate", str(SHOP_OF_300_LINES)])
    found = {rule.name: rule for rule in Rules.loads(done.stdout, format="toml")}
    assert found["search"].match == ("GET /products/search",)
    assert found["search"].replaces == ("default", "product")
    assert found["writes"].match == ("POST /cart/lines", "DELETE /cart/lines")
    assert (found["checkout"].match, found["checkout"].cost) == (("POST /orders/checkout",), 2)
    assert found["price"].match == ("POST /admin/prices/{id}",)
    assert found["archive-by_partner"].match == ("GET /v1/news/letters/archive/{year}",)
    assert found["tags-ByField"].key == "tags-ByField:{ByField}"
    assert len(found) == 20
    assert "with_slowapi.py:193: this limit is no text that stands here" in done.stderr
    assert done.stderr.count("router may be included below a prefix") == 6
    assert "application: slowapi asks it for routes alone that have no limit of their own" in done.stderr
    assert "thumbnail: slowapi counts each URL by itself, this rule all of them together: write {path}" in done.stderr


def test_a_router_that_has_several_prefixes_in_one_place_is_told(tmp_path: Path) -> None:
    text = """
router = APIRouter(prefix="/a")
router = APIRouter(prefix="/b")

@router.get("/c")
@limiter.limit("5/minute")
def c(request): ...
"""
    done = migrated(tmp_path, text)
    assert "app.py:5: router has no one prefix that is written here: add the path to match" in done.stderr
    assert "[[rules]]" not in done.stdout


def test_limits_with_key_functions_of_their_own_are_rules_of_their_own(tmp_path: Path) -> None:
    text = """
limiter = Limiter(get_remote_address, default_limits=["9/hour"])
@app.get("/item")
@limiter.limit("100/hour", key_func=user_key)
@limiter.limit("10/minute")
@limiter.limit("2/second", key_func=get_remote_address)
def item(request): ...
"""
    found = [*moved(tmp_path, text)[0].values()][1:]
    assert [(rule.name, str(rule.quota), rule.key, rule.replaces) for rule in found] == [
        ("item-user_key", "100/h", "item-user_key:{user_key}", ("default",)),
        ("item", "10/m", "item:{ip}", ("default",)),
        ("item-ip", "2/s", "item-ip:{ip}", ("default",)),
    ]


def test_a_limit_that_is_kept_in_a_variable_is_that_of_each_route_it_decorates(tmp_path: Path) -> None:
    text = """
WRITES = "7/minute"
shared = limiter.shared_limit(WRITES, scope="s", key_func=get_ipaddr, error_message="no")
each: Decorator = limiter.limit("2/hour")

@app.post("/a")
@shared
def a(request): ...

@app.post("/b")
@shared
@each
def b(request): ...

@app.get("/c")
@each
def c(request): ...
"""
    found, told = moved(tmp_path, text)
    assert [(rule.name, str(rule.quota), rule.key, rule.match) for rule in found.values()] == [
        ("s-ip", "7/m", "s-ip:{ip}", ("POST /a", "POST /b")),
        ("b", "2/h", "b:{ip}", ("POST /b",)),
        ("c", "2/h", "c:{ip}", ("GET /c",)),
    ]
    assert told == [
        "3: key_func: the rule's key has a field of its own: let identify tell it",
        "3: error_message: answer by on_rejected",
    ]


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
        "app.py:11: shared_limit is applied in a way that is not read: write its rule by hand",
        "other.py:7: c has a limit that was made elsewhere: write its rule by hand",
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
def test_default_limits_of_two_programs_are_not_joined(
    tmp_path: Path, one: str, two: str, taken: list[str], told: tuple[str, str] | None
) -> None:
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


def test_limits_in_the_configuration_of_an_application_are_told(tmp_path: Path) -> None:
    text = """
RATELIMIT_META = "9/day"
app.config["RATELIMIT_DEFAULT"] = "100/hour"
app.config.from_mapping(RATELIMIT_APPLICATION="1000/hour", RATELIMIT_STORAGE_URI="memory://")
limiter = Limiter(get_remote_address, app=app, default_limits=["5/minute"])
"""
    assert moved(tmp_path, text)[1] == [
        "2: RATELIMIT_META sets limits of all routes: write their rule by hand",
        "3: RATELIMIT_DEFAULT sets limits of all routes: write their rule by hand",
        "4: RATELIMIT_APPLICATION sets limits of all routes: write their rule by hand",
    ]


def test_methods_are_those_of_any_list_and_what_is_not_all_there_is_told(tmp_path: Path) -> None:
    text = """
@app.api_route("/a", methods={"POST"})
@limiter.limit("1/hour")
def a(request): ...

@app.api_route("/b", methods=["POST", *MORE])
@limiter.limit("2/hour")
def b(request): ...

@app.api_route("/c", methods=OTHER)
@limiter.limit("3/hour")
def c(request): ...

@app.route("/d", methods=("GET", "POST"))
@limiter.limit("4/hour", methods={"POST"})
def d(): ...

@app.route("/e", methods=["PUT"])
@limiter.limit("5/hour", methods=OTHER)
def e(): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.match for name, rule in found.items()} == {
        "a": ("POST /a",),
        "d": ("POST /d",),
        "e": ("PUT /e",),
    }
    assert told == [
        "6: its methods are no texts that stand here: add them with the path to match",
        "8: b has a limit, and no route that is written here: add its path as match",
        "10: its methods are no texts that stand here: add them with the path to match",
        "12: c has a limit, and no route that is written here: add its path as match",
        "19: its methods are no texts that stand here: write them into its match",
    ]


def test_the_scope_of_a_shared_limit_may_stand_without_its_name_and_one_that_is_no_text_is_told(tmp_path: Path) -> None:
    text = """
@app.get("/a")
@limiter.shared_limit("5/minute", "reports")
def a(request): ...

@app.get("/b")
@limiter.shared_limit("5/minute", scope="reports")
def b(request): ...

@app.get("/c")
@limiter.shared_limit("7/minute", scope=host)
def c(request): ...
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.match for name, rule in found.items()} == {"reports": ("GET /a", "GET /b"), "c": ("GET /c",)}
    assert told == ["11: its scope is no text that stands here: let the rules that share it have one key"]


@pytest.mark.parametrize("folder", ["venv/lib/python3.11/site-packages/slowapi", ".venv/slowapi", ".git"])
def test_what_is_installed_in_a_folder_or_hidden_there_is_no_part_of_its_program(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "extension.py").write_text("def (", encoding="utf-8")
    text = "limiter = Limiter(get_remote_address, default_limits=['9/hour'])"
    assert (migrated(tmp_path, text).exit_code, migrated(tmp_path, text).stderr) == (0, "")


def test_what_queries_and_other_extensions_call_limit_and_exempt_is_none_of_a_limiter(tmp_path: Path) -> None:
    text = """
csrf = CSRFProtect(app)
guard: Limiter = Limiter(get_remote_address)

@app.post("/hook")
@csrf.exempt
@guard.limit("5/minute")
def hook():
    return session.query(Item).offset(1).limit(10).all() + query.limit(size)

@app.get("/health")
@guard.exempt
def health(): ...

csrf.exempt(blueprint)
guard.exempt(blueprint)
"""
    found, told = moved(tmp_path, text)
    assert {name: rule.match for name, rule in found.items()} == {"hook": ("POST /hook",)}
    assert migrated(tmp_path, text).stdout.startswith('exempt = ["GET /health"]\n')
    assert told == ["16: exempt is applied in a way that is not read: write its rule by hand"]
