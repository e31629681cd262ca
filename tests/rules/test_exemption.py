"""What is exempt: patterns match a path as it is written, so that no client writes its path as an exempt one."""

import pickle

import pytest

from batchlimit.rules import Request, Rule, Rules, RulesError

ALL = Rule("all", "100/s", key="all")


def is_ann(request: Request) -> bool:
    return request.identity.get("user") == "ann"


async def is_bob(request: Request) -> bool:
    return True


@pytest.mark.parametrize(
    ("pattern", "method", "path", "root", "is_exempt"),
    [
        ("GET /health", "GET", "/health", "", True),
        ("GET /health", "HEAD", "/health", "", True),
        ("GET /health", "POST", "/health", "", False),
        ("/health", "GET", "/health", "/v1", True),
        ("/health", "GET", "/v1/health", "/v1", True),
        ("/v1/health", "GET", "/v1/health", "/v1/", True),
        ("/health", "GET", "/v1health", "/v1", False),
        ("/health", "GET", "/api/v1/health", "/v1", False),
        ("/health", "GET", "/Health", "", False),
        ("/health", "GET", "/health/", "", False),
        ("/health/", "GET", "/health/", "", True),
        ("/health", "GET", "/health\n", "", False),
        ("/health", "GET", "/x/../health", "", False),
        ("/static/*", "GET", "/static/a/b.css", "", True),
        ("/static/*", "GET", "/static", "", True),
        ("/static/*", "GET", "/statics", "", False),
        ("/static/*", "GET", "/static/../api", "", False),
        ("/static/*", "GET", "/static//api", "", False),
        ("/static/*", "GET", "/static/%2e%2e/api", "", False),
        ("/static/*", "GET", "/static/..\\api", "", False),
        ("/static/*", "GET", "/STATIC/a", "", False),
        ("/a.b/{id}/x", "GET", "/a.b/7/x", "", True),
        ("/a.b/{id}/x", "GET", "/a.b//x", "", False),
        ("/a.b/{id}/x", "GET", "/acb/7/x", "", False),
        ("*", "GET", "/anything", "", True),
        ("OPTIONS *", "GET", "/anything", "", False),
    ],
)
def test_a_pattern_exempts_what_is_written_so_and_nothing_that_may_be_read_so(
    pattern: str, method: str, path: str, root: str, is_exempt: bool
) -> None:
    rules = Rules([ALL], exempt=pattern)
    request = Request(method, path, root=root)
    assert bool(rules.applicable(request).applied) is not is_exempt
    assert bool(rules.templates(method, path, root)) is not is_exempt
    assert (rules.explain(request).verdicts[0].outcome == "exempt") is is_exempt


def test_an_explanation_says_what_exempts_a_request() -> None:
    rules = Rules([ALL, Rule("api", "9/s", key="api", match="/api/*")], exempt=["/health", is_ann])
    assert str(rules.explain(Request("GET", "/health"))).splitlines() == [
        "GET /health",
        "  exempt    all  -  100/s  /health is exempt",
        "  no match  api  -  9/s    /api/* is for other paths",
    ]
    assert rules.explain(Request("GET", "/", {"user": "ann"})).verdicts[0].why == "a function exempts it"
    assert rules.explain(Request("GET", "/")).verdicts[0].outcome == "applies"


@pytest.mark.parametrize("told", [True, False, None])
def test_a_function_exempts_by_true_alone(told: bool | None) -> None:
    exemption = Rules([ALL], exempt=[lambda request: told]).exemption  # type: ignore[list-item, return-value]
    assert exemption.by_functions(Request("GET", "/")) is (told is True)


@pytest.mark.parametrize("told", [1, 0, "yes"])
def test_a_function_that_returns_no_bool_is_an_error(told: object) -> None:
    exemption = Rules([ALL], exempt=[lambda request: told]).exemption  # type: ignore[list-item, return-value]
    with pytest.raises(TypeError, match="True or False"):
        exemption.by_functions(Request("GET", "/"))


@pytest.mark.parametrize(
    ("exempt", "problem"),
    [
        ("health", "a path begins with a slash"),
        (["/a", "/b?c"], "a path has no query"),
        ([7], "match is a str or several"),
        (is_bob, "is asynchronous: let identify ask, and exempt look"),
    ],
)
def test_an_exemption_that_cannot_work_is_an_error(exempt: object, problem: str) -> None:
    with pytest.raises(RulesError, match=problem):
        Rules([ALL], exempt=exempt)  # type: ignore[arg-type]


def test_rules_travel_between_processes_with_what_is_exempt() -> None:
    rules = pickle.loads(pickle.dumps(Rules([ALL], exempt=["/health", is_ann])))
    assert rules.applicable(Request("GET", "/health")).applied == ()
    assert rules.exemption.by_functions(Request("GET", "/", {"user": "ann"}))
