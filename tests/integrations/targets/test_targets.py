"""No target, method or header field gets round a rule: each face, behind each server, mounted and not."""

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module

import pytest

from batchlimit import integrations
from tests.depth import DEEP, depth
from tests.integrations.targets.apps import ASGI, FACES, OWN, ROUTES, WSGI
from tests.integrations.targets.raw import HOPS, NO_ADDRESSES, PLAIN, REQUESTS, get
from tests.integrations.targets.requests import PATHS, Written, written
from tests.integrations.targets.servers import SETUPS, WSGI_SERVERS, Asked, Setup, routes_of, serving, statuses_of

SEED = 31_337
_USUAL = {
    Setup("hypercorn", False): ["quart"],
    Setup("gunicorn", False): ["flask"],
    Setup("waitress", True): ["django"],
    Setup("aiohttp", False): ["aiohttp"],
}
"""A server of each kind, with a face each."""
_RAW = [Setup("hypercorn", False), Setup("gunicorn", False), *depth([], [Setup("uvicorn-h11", False)])]
"""Servers to which requests are sent as they are: others wait for more, or drop what a proxy says."""
raw = pytest.mark.parametrize("served", _RAW, indirect=True, ids=str)
WITHOUT_TARGETS = {"grpc"}
"""A call has no target: it names its method, and nothing else finds it."""


@pytest.fixture(scope="module", params=depth(list(_USUAL), SETUPS), ids=str)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Setup, int]]:
    setup: Setup = request.param
    with serving(setup) as port:
        yield setup, port


def asked(served: tuple[Setup, int]) -> dict[str, Asked]:
    setup, port = served
    return {face: Asked(port, face) for face in (faces_of(setup) if DEEP else _USUAL[setup])}


def faces_of(setup: Setup) -> Iterable[str]:
    return OWN if setup.server == "aiohttp" else WSGI if setup.server in WSGI_SERVERS else ASGI


def test_no_request_gets_round_a_rule(served: tuple[Setup, int]) -> None:
    mount = "/v1" if served[0].is_mounted else ""
    ways = {face: it.ways_round(written(SEED, depth(150, 1000), mount)) for face, it in asked(served).items()}
    assert not any(ways.values()), ways


@raw
@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_that_is_none_gets_round_a_rule_or_is_a_500(served: tuple[Setup, int], name: str) -> None:
    for it in asked(served).values():
        told = it.told(REQUESTS[name])
        assert not {*routes_of(told)} & {*ROUTES}
        assert 500 not in statuses_of(told)
        assert statuses_of(it.told(PLAIN)), "the server goes on"


@raw
@pytest.mark.parametrize("name", HOPS)
def test_a_client_cannot_write_itself_another_address(served: tuple[Setup, int], name: str) -> None:
    for it in asked(served).values():
        statuses = [statuses_of(it.told(get(b"/client", fields + b"\r\n"))) for fields in HOPS[name]]
        assert statuses == [[404], [404], [404], [429]]


@raw
@pytest.mark.parametrize("value", NO_ADDRESSES)
def test_an_address_that_is_none_is_no_500(served: tuple[Setup, int], value: bytes) -> None:
    for it in asked(served).values():
        statuses = [statuses_of(it.told(get(b"/client", b"X-Forwarded-For: " + value + b"\r\n"))) for _ in range(4)]
        assert statuses[-1] == [429]
        assert {each for (each,) in statuses} <= {404, 429}


def test_the_routes_are_there_and_under_rules(served: tuple[Setup, int]) -> None:
    server, is_mounted = served[0]
    mount = "/v1" if is_mounted and not server.startswith("uvicorn") else ""  # which writes it before each path
    for face, it in asked(served).items():
        assert it.served(Written("GET", f"{mount}/open")) == ["open"], face
        assert it.served(Written("GET", f"{mount}/orders")) == ["open"], face
        assert {it.status(Written("POST", mount + path)) for path in PATHS} == {429}, face


@pytest.mark.parametrize("server", ["hypercorn", "gunicorn", "aiohttp"])
def test_whatever_got_round_a_rule_would_be_served(server: str) -> None:
    setup = Setup(server, False)
    with serving(setup, "1000/s") as port:
        for face in faces_of(setup):
            it = Asked(port, face)
            served = [it.served(Written("GET", path)) for path in ("/login", "/items/7", "/mounted/x")]
            assert [*served, it.served(Written("POST", "/orders"))] == [[route] for route in ROUTES], face


def test_every_face_is_in_the_matrix() -> None:
    """A new integration gets an application in `apps.py`."""
    names = [each.name for each in pkgutil.iter_modules(integrations.__path__)]
    holding = {name for name in names if _holds_rules(import_module(f"{integrations.__name__}.{name}"))}
    assert holding - WITHOUT_TARGETS == set(FACES.values())


def _holds_rules(module: object) -> bool:
    return any("RateLimit" in name or name in ("Limits", "add_rate_limits") for name in getattr(module, "__all__", ()))
