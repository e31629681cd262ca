"""The applications in examples/ do what their pages say."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

ROOT = Path(__file__).parents[3]
ANN, BOB = {"x-api-key": "secret-of-ann"}, {"x-api-key": "secret-of-bob"}


def client(name: str, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setenv("REDIS_URL", "memory://")
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
