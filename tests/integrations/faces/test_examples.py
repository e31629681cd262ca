"""The applications in examples/ do what their pages say."""

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

ROOT = Path(__file__).parents[3]
ANN, BOB = {"x-api-key": "secret-of-ann"}, {"x-api-key": "secret-of-bob"}


def client(name: str, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    for variable in ("REDIS_URL", "STORE"):
        monkeypatch.setenv(variable, "memory://")
    app: Any = runpy.run_path(str(ROOT / "examples" / f"{name}_app.py"))["app"]
    return TestClient(app, client=("192.0.2.1", 50_000))


@pytest.mark.parametrize("name", ["fastapi", "litestar"])
def test_an_example_limits_by_user_by_address_and_by_outcome(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(name, monkeypatch) as it:
        assert [it.get("/api/report", headers=ANN).status_code for _ in range(3)] == [200, 200, 429]
        refused = it.get("/api/search?q=x", headers=ANN)
        assert refused.json()["violated-policies"] == ["search"]
        assert it.get("/api/search?q=x", headers=BOB).status_code == 200
        statuses = [it.post(f"/login?password={word}").status_code for word in ["correct", *["wrong"] * 5, "correct"]]
        assert statuses == [200, *[401] * 5, 429]
        assert it.get("/api/search?q=x").status_code in (400, 401, 422)
        assert it.get("/limits").json()["unmatched"] == 0


def test_the_example_of_quart_does_what_its_page_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    with client("quart", monkeypatch) as it:
        replies = [it.get("/search", headers={"x-user": "ann"}) for _ in range(3)]
        assert [each.status_code for each in replies] == [200, 200, 429]
        assert replies[2].text == "search: too many requests\n"
        assert replies[2].headers["ratelimit"].startswith('"search";r=0')
        assert [it.get("/reports/x", headers={"x-user": "ann"}).status_code for _ in range(3)] == [200, 200, 429]
        assert [it.post("/login", data={"password": "guess"}).status_code for _ in range(6)] == [401] * 5 + [429]
        chat: Any = it.app
        asyncio.run(_talk(chat.test_client()))


async def _talk(client: Any) -> None:
    async with client.websocket("/chat") as chat:
        await chat.send("hello")
        assert await chat.receive() == "hello"
