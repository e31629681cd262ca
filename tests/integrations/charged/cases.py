"""What a client does in each case, and what it is charged for that: measured."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.integrations.charged.behind import BURST, Behind
from tests.integrations.charged.client import Client
from tests.integrations.charged.faces import Face

Act = Callable[[Client, str], Any]
Charged = dict[str, int]
"""Tokens, by rule."""


class Case(NamedTuple):
    """What the page says that a client does, and what does it, as a user."""

    title: str
    act: Act


def asks(path: str, method: str = "GET", **options: Any) -> Act:
    return lambda client, user: client.ask(user, path, method, **options)


def _crowd(client: Client, user: str) -> None:
    statuses = client.at_once(user, "/item", BURST + 2)
    assert statuses == [200] * BURST + [429] * 2, statuses


PREFLIGHT = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
CASES = {
    "usual": Case("one request", asks("/item")),
    "tested": Case("one request of the framework's test client", lambda client, user: None),
    "at_once": Case(f"{BURST + 2} requests at once, of a caller with {BURST} tokens", _crowd),
    "head": Case("`HEAD` of a route that is written for `GET`", asks("/item", "HEAD")),
    "options": Case("`OPTIONS` of a route that is written for `GET`", asks("/item", "OPTIONS")),
    "preflight": Case("a CORS preflight, and no CORS middleware", asks("/item", "OPTIONS", **PREFLIGHT)),
    "moved": Case("a redirect that the client does not follow", asks("/moved")),
    "followed": Case("a redirect that the client follows", asks("/moved", follows=True)),
    "slash": Case("a slash is missing, and the client follows the redirect", asks("/folder", follows=True)),
    "same": Case("304", asks("/same")),
    "nowhere": Case("404: no route has this path", asks("/nowhere")),
    "wrong": Case("405: the route is written for `POST`", asks("/form")),
    "off": Case("429: the route asks for another rule, which refuses", asks("/off")),
    "broken": Case("500: the view raises", asks("/broken")),
    "stream": Case("a stream of three parts", asks("/stream")),
    "endless": Case("a stream whose client goes away", lambda client, user: client.leave(user, "/endless")),
    "later": Case("a response with a background task", asks("/later")),
    "below": Case("a route of a mounted application, a blueprint, a subapplication", asks("/mounted/item")),
    "static": Case("a static file", asks("/static/cases.py")),
    "ws": Case("a websocket: its handshake and 3 messages", lambda client, user: client.talk(user, "/ws", 3)),
}


def measured(face: Face) -> dict[str, Charged | None]:
    """Serve an application of a face, do everything, and return what was charged by case; None: it has no such case."""
    behind = Behind()
    with face.made(behind) as (app, statistics), face.serve(app, behind) as port:
        client = Client(port)
        for name, case in CASES.items():
            if name not in face.lacks:
                case.act(client, name)
        behind.await_ends(statistics)
    found = {name: None if name in face.lacks else behind.tokens(name) for name in CASES}
    found["tested"] = _tested(face)
    return found


def _tested(face: Face) -> Charged | None:
    if face.ask is None:
        return None
    behind = Behind()
    with face.made(behind) as (app, statistics):
        assert face.ask(app, "/item", "tested") == 200
        behind.await_ends(statistics)
    behind.close_of_threads()
    return behind.tokens("tested")
