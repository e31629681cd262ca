"""The applications in examples/ do what their pages say."""

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
from quart.testing.connections import WebsocketDisconnectError
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


def test_the_example_of_quart_limits_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    chat: Any = client("quart", monkeypatch).app  # the client of Starlette cannot end a websocket of Quart

    async def main() -> None:
        peer = {"client": ("192.0.2.1", 50_000)}
        async with chat.test_app() as it, it.test_client().websocket("/chat", scope_base=peer) as websocket:
            for _ in range(20):
                await websocket.send("hello")
                assert await websocket.receive() == "hello"
            await websocket.send("hello")
            with pytest.raises(WebsocketDisconnectError) as closed:
                await websocket.receive()
            assert closed.value.args == (1008,)

    asyncio.run(main())
