"""A Flask application with limits, called by its test client in a time that the test sets."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, g, request, session
from flask.views import MethodView
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from batchlimit.integrations.flask import Limits, Rejected
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Rule
from tests.integrations.backing import Backing
from tests.integrations.structured import read_limits

IP = Rule("ip", "2/minute", key="ip:{ip}")
SEARCH = Rule("search", "5/hour", key="search:{user}", match=None)


def who(native: Any) -> dict[str, Any]:
    return {"user": native.headers.get("x-user")}


class Limited(Backing):
    """An application with limits."""

    def __init__(self, *rules: Rule, **options: Any) -> None:
        super().__init__(rules)
        options = {"headers": Fields(secret=b"s", chance=lambda: 1.0), "identify": who, **options}
        self.app = Flask("test")
        self.app.secret_key = "s"
        self.limits = Limits(self.make(), rules, **options)

    def call(self, path: str = "/", method: str = "GET", user: str = "ann", **options: Any) -> Any:
        headers = {"x-user": user, **options.pop("headers", {})}
        options = {"buffered": True, **options}
        return self.app.test_client().open(path, method=method, headers=headers, **options)

    def statuses(self, times: int, path: str = "/", **options: Any) -> list[int]:
        return [self.call(path, **options).status_code for _ in range(times)]


Make = Callable[..., Limited]


@pytest.fixture
def limited(without_refresher: None) -> Iterator[Make]:
    made: list[Limited] = []

    def make(*rules: Rule, late: bool = False, **options: Any) -> Limited:
        service = Limited(*rules, **options)
        made.append(service)
        if not late:
            service.limits.init_app(service.app)
        service.app.add_url_rule("/", "index", lambda: "hello", methods=["GET", "POST"])
        return service

    yield make
    for each in made:
        each.close_of_threads()


@pytest.mark.parametrize("kind", [429, Rejected, HTTPException])
@pytest.mark.parametrize(("path", "name"), [("/", "off"), ("/none", "none")], ids=["by its path", "by its view"])
def test_a_handler_of_the_application_has_the_fields_of_the_refusal(
    limited: Make, kind: Any, path: str, name: str
) -> None:
    service = limited(Rule("off", "0/s", key="off", match="/"), Rule("none", "0/s", key="none", match=None))
    service.app.add_url_rule("/none", "none", service.limits.limited("none")(lambda: "never"))
    service.app.register_error_handler(kind, lambda error: (f"calm down, {error.refusal.rules}", 420))
    reply = service.call(path)
    assert (reply.status_code, reply.text) == (420, f"calm down, ('{name}',)")
    assert reply.headers["cache-control"] == "no-store"
    assert list(read_limits(reply.headers)) == [name]


# The identity of a client, and the order of before_request
def test_identify_sees_what_functions_before_init_app_have_put_into_g_and_the_session(limited: Make) -> None:
    def identify(native: Any) -> Any:
        return {"user": g.user, "plan": session["plan"]}

    service = limited(Rule("user", "1/hour", key="{user}:{plan}"), late=True, identify=identify)

    @service.app.before_request
    def log_in() -> None:
        g.user = request.headers["x-user"]
        session["plan"] = "free"

    service.limits.init_app(service.app)
    assert [service.call(user=user).status_code for user in ("ann", "bob", "ann")] == [200, 200, 429]


def test_what_an_earlier_function_answers_is_limited_too(limited: Make) -> None:
    service = limited(Rule("ip", "1/hour", key="ip:{ip}"), late=True)
    service.app.before_request(lambda: ("who are you", 401))
    service.limits.init_app(service.app)
    replies = [service.call() for _ in range(2)]
    assert [each.status_code for each in replies] == [401, 429]
    assert [read_limits(each.headers)["ip"].r for each in replies] == [0, 0]
    assert replies[1].content_type == "application/problem+json"


def test_what_an_earlier_function_answers_stands_where_nobody_can_say_who_asks(limited: Make) -> None:
    service = limited(Rule("user", "1/hour", key="user:{user}"), late=True, identify=lambda native: None)
    service.app.before_request(lambda: ("log in first", 401))
    service.limits.init_app(service.app)
    assert service.call().status_code == 401


def test_addresses_that_proxy_fix_has_read_are_believed(limited: Make, caplog: pytest.LogCaptureFixture) -> None:
    service = limited(Rule("ip", "1/hour", key="ip:{ip}"))
    service.app.wsgi_app = ProxyFix(service.app.wsgi_app)  # type: ignore[method-assign]
    clients = ["203.0.113.1", "203.0.113.2", "203.0.113.1"]
    statuses = [service.call(headers={"x-forwarded-for": each}).status_code for each in clients]
    assert statuses == [200, 200, 429]
    assert "no proxy is trusted" not in caplog.text


@pytest.mark.parametrize("early", [True, False], ids=["before init_app", "after init_app"])
def test_views_that_are_classes_and_coroutines_are_limited(limited: Make, early: bool) -> None:
    service = limited(SEARCH, late=early)
    limit = service.limits.limited("search:{user}", cost=3)

    async def coroutine() -> str:
        return "b"

    class View(MethodView):
        decorators = [limit]  # noqa: RUF012

        def get(self) -> str:
            return "c"

    service.app.add_url_rule("/b", view_func=limit(coroutine))
    service.app.add_url_rule("/c", view_func=View.as_view("c"))
    if early:
        service.limits.init_app(service.app)
    assert [service.statuses(2, f"/{name}", user=name) for name in "bc"] == [[200, 429]] * 2


@pytest.mark.parametrize("early", [True, False])
def test_a_limit_above_its_route_is_a_503_and_logged(limited: Make, early: bool, caplog: Any) -> None:
    service = limited(SEARCH)

    def search() -> str:
        return "found"

    if early:
        service.app.add_url_rule("/search", view_func=search)
        service.limits.limited("search:{user}")(search)
    else:
        service.limits.limited("search:{user}")(search)
        service.app.add_url_rule("/search", view_func=search)
    assert service.statuses(2, "/search") == [503, 503]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "below @app.route" in errors[0]


def test_a_limit_of_an_application_without_limits_is_a_503_and_logged(limited: Make, caplog: Any) -> None:
    service = limited(SEARCH, late=True)
    service.app.add_url_rule("/search", "search", service.limits.limited("search:{user}")(lambda: "found"))
    assert service.call("/search").status_code == 503
    assert "call init_app" in caplog.text


def test_one_extension_serves_several_applications_each_by_its_own_setting() -> None:
    limits = Limits(None, [Rule("all", "1/hour", key="all")])
    for name in ("one", "two"):
        app = Flask(name)
        app.config["BATCHLIMIT_URL"] = "memory://"
        limits.init_app(app)
        app.add_url_rule("/", "index", lambda: "hello")
        client = app.test_client()
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]
        assert limits.statistics(app).rules["all"].refused == 1
        with app.app_context():
            assert limits.statistics().requests == 2


def test_statistics_need_no_current_application_as_an_exporter_in_a_thread_has_none() -> None:
    limits, other = Limits("memory://", [Rule("all", "1/hour", key="all")]), Flask("metrics")
    Limits("memory://", [Rule("metrics", "1/hour", key="metrics")], other)
    with pytest.raises(RuntimeError, match="init_app"):
        limits.statistics()
    limits.init_app(app := Flask("shop"))
    app.test_client().get("/")
    assert limits.statistics().requests == 1
    with other.app_context():  # which has the metrics page, and limits of its own
        assert limits.statistics().requests == 1


def test_an_application_in_the_place_of_the_store_is_an_error() -> None:
    """As in `Limiter(app)` of other libraries; it would serve without limits."""
    with pytest.raises(TypeError, match=r"an application comes last, as in Limits\(url, rules, app\)"):
        Limits(Flask("app"), [Rule("all", "5/s", key="all")])  # type: ignore[arg-type]


def test_an_application_without_a_store_or_with_two_limits_does_not_start() -> None:
    limits, app = Limits(None, [IP]), Flask("test")
    with pytest.raises(ValueError, match="BATCHLIMIT_URL"):
        limits.init_app(app)
    app.config["BATCHLIMIT_URL"] = "memory://"
    limits.init_app(app)
    with pytest.raises(RuntimeError, match="one Limits"):
        Limits("memory://", [IP], app)
