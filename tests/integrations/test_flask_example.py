"""The example of Flask, as the page of it tells."""

from importlib import import_module

import pytest


def test_the_example_does_what_the_page_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "memory://")
    client = import_module("examples.flask_app").app.test_client()
    replies = [client.get("/search", headers={"x-user": "ann"}) for _ in range(3)]
    assert [each.status_code for each in replies] == [200, 200, 429]
    assert replies[2].text == "search: too many requests\n"
    assert replies[2].headers["ratelimit"].startswith('"search";r=0')
    logins = [client.post("/login", data={"password": "guess"}).status_code for _ in range(6)]
    assert logins == [401] * 5 + [429]
