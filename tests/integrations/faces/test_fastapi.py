"""What FastAPI alone has: dependencies, OpenAPI, a check at the start, exception handlers."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from batchlimit.integrations.fastapi import RefusedRequest, add_rate_limits, limited, responses
from batchlimit.integrations.headers import Form
from batchlimit.rules import Rule, RulesError

RULES = [Rule("once", "1/hour", key="once:{ip}", match=None), Rule("other", "1/hour", key="other", match="/other")]


def once() -> Any:
    return Depends(limited("once:{ip}"))


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI(responses=responses())
    add_rate_limits(app, "memory://", RULES)
    return app


def client(app: FastAPI) -> TestClient:
    return TestClient(app, client=("192.0.2.1", 50_000), raise_server_exceptions=False)


def _route(app: FastAPI, dependency: Any) -> None:
    app.get("/x", dependencies=[dependency])(lambda: None)


def _parameter(app: FastAPI, dependency: Any) -> None:
    def handler(nothing: None = dependency) -> None: ...

    app.get("/x")(handler)


def _deep(app: FastAPI, dependency: Any) -> None:
    def between(nothing: None = dependency) -> None: ...

    app.get("/x", dependencies=[Depends(between)])(lambda: None)


def _router(app: FastAPI, dependency: Any) -> None:
    router = APIRouter(dependencies=[dependency])
    router.get("/x")(lambda: None)
    app.include_router(router)


def _include(app: FastAPI, dependency: Any) -> None:
    inner, outer = APIRouter(), APIRouter()
    inner.get("/x")(lambda: None)
    outer.include_router(inner, dependencies=[dependency])
    app.include_router(outer)


def _mount(app: FastAPI, dependency: Any) -> None:
    mounted = FastAPI(dependencies=[dependency])
    mounted.get("/x")(lambda: None)
    app.mount("/", mounted)


PLACES = [_route, _parameter, _deep, _router, _include, _mount]


@pytest.mark.parametrize("place", PLACES)
def test_a_limit_holds_wherever_fastapi_takes_a_dependency(app: FastAPI, place: Any) -> None:
    place(app, once())
    with client(app) as it:
        replies = [it.get("/x") for _ in range(2)]
    assert [each.status_code for each in replies] == [200, 429]
    assert replies[1].headers["ratelimit"].startswith('"once";r=0')


@pytest.mark.parametrize("place", PLACES)
def test_a_key_that_no_rule_has_ends_the_start(app: FastAPI, place: Any) -> None:
    place(app, Depends(limited("one:{ip}")))
    with pytest.raises(RulesError, match="did you mean 'once:"), client(app):
        pass


def test_a_dependency_that_two_share_is_charged_once(app: FastAPI) -> None:
    shared = once()
    app.get("/x", dependencies=[shared, shared])(lambda: None)
    assert client(app).get("/x").status_code == 200


def test_identify_may_have_dependencies_of_dependencies(app: FastAPI) -> None:
    def session() -> Iterator[str]:
        yield "192.0.2.77"

    def who(address: str = Depends(session)) -> dict[str, str]:
        return {"ip": address}

    app.get("/x", dependencies=[Depends(limited("once:{ip}", identify=who))])(lambda: None)
    app.get("/y", dependencies=[once()])(lambda: None)
    it = client(app)
    assert [it.get(path).status_code for path in ("/x", "/x", "/y")] == [200, 429, 200]


def test_a_dependency_that_refuses_for_its_own_reasons_charges_nothing(app: FastAPI) -> None:
    from fastapi import HTTPException

    def who() -> dict[str, str]:
        raise HTTPException(401)

    app.get("/x", dependencies=[Depends(limited("once:{ip}", identify=who))])(lambda: None)
    app.get("/y", dependencies=[once()])(lambda: None)
    it = client(app)
    assert [it.get(path).status_code for path in ("/x", "/y")] == [401, 200]


def test_openapi_lists_the_refusals_and_their_fields(app: FastAPI) -> None:
    app.get("/x", dependencies=[once()])(lambda: None)
    found = client(app).get("/openapi.json").json()["paths"]["/x"]["get"]["responses"]
    assert sorted(found["429"]["headers"]) == ["RateLimit", "RateLimit-Policy", "Retry-After"]
    assert sorted(found["503"]["headers"]) == ["Retry-After"]
    schema = found["429"]["content"]["application/problem+json"]["schema"]
    assert "violated-policies" in schema["properties"]


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("legacy", ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]),
        ("off", ["Retry-After"]),
    ],
)
def test_openapi_lists_the_fields_that_are_sent(form: Form, fields: list[str]) -> None:
    app = FastAPI()
    add_rate_limits(app, "memory://", RULES, headers=form)
    app.get("/x", dependencies=[once()], responses=responses(form))(lambda: None)
    it = client(app)
    refused = [it.get("/x") for _ in range(2)][1]
    listed = it.get("/openapi.json").json()["paths"]["/x"]["get"]["responses"]["429"]["headers"]
    sent = [each for each in refused.headers if each.startswith(("x-", "rate", "retry"))]
    assert sorted(listed) == fields
    assert sorted(sent) == [each.lower() for each in fields]


def test_a_mounted_application_without_handlers_of_ours_refuses_all_the_same(app: FastAPI) -> None:
    _mount(app, once())
    it = client(app)
    refused = [it.get("/x") for _ in range(2)][1]
    assert refused.status_code == 429
    assert refused.json() == {"detail": "Too Many Requests"}
    assert {"ratelimit", "retry-after"} <= set(refused.headers)


def test_a_handler_of_the_users_own_answers_and_the_fields_are_added(app: FastAPI) -> None:
    async def handler(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RefusedRequest)
        return JSONResponse({"mine": error.refusal.rules}, 429)

    app.add_exception_handler(RefusedRequest, handler)
    app.get("/x", dependencies=[once()])(lambda: None)
    it = client(app)
    refused = [it.get("/x") for _ in range(2)][1]
    assert refused.json() == {"mine": ["once"]}
    assert {"ratelimit", "retry-after"} <= set(refused.headers)


def test_without_the_middleware_a_limited_route_is_closed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    app.get("/x", dependencies=[Depends(limited("nobody:{ip}"))])(lambda: None)
    it = client(app)
    replies = [it.get("/x") for _ in range(2)]
    assert [(each.status_code, each.headers["retry-after"]) for each in replies] == [(503, "1")] * 2
    assert [each.levelname for each in caplog.records if "'nobody:{ip}'" in each.getMessage()] == ["ERROR"]


def test_a_limit_or_an_option_that_cannot_work_is_told_where_it_is_written(app: FastAPI) -> None:
    with pytest.raises(RulesError):
        limited("once:{ip")
    with pytest.raises(TypeError):
        add_rate_limits(app, "memory://", RULES, identfy=None)


def test_a_limit_as_a_decorator_says_depends() -> None:
    app = FastAPI()
    with pytest.raises(TypeError, match=r"give the route dependencies=\[Depends\(limited\('once:\{ip\}'\)\)\]"):
        app.get("/x")(limited("once:{ip}")(lambda: None))
