"""A shop behind slowapi, moved by the page alone: both answer the same requests the same, on Redis."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from fastapi.testclient import TestClient

from tests.integrations.moved import with_batchlimit, with_slowapi
from tests.nodes import node
from tests.servers import any_binary

USERS = ("ann", "bob", "root")
LINE, REVIEW = {"product": 1}, {"stars": 5}
RIGHT, WRONG = {"user": "ann", "password": "right"}, {"user": "ann", "password": "wrong"}
PAGES = ("/", "/old")
"""Two limits hold here: slowapi tells the wider one."""
Asked = tuple[str, str, Any]
Answer = tuple[str, Asked, int, str, str]
"""Who asked what, the status, the body, and what the response tells of the limit, or nothing."""
REQUESTS: list[Asked] = [
    *[("GET", path, None) for _ in range(3) for path in (*PAGES, "/health")],
    *[("GET", "/", None)] * 5,  # what all pages share is empty before those of one
    *[("GET", "/products/search?q=product", None)] * 7,
    *[("GET", f"/products/{number}", None) for number in (1, 2, 1, 99, 1, 2, 1, 1, 99, 99, 99)],
    *[("POST", f"/products/{number}/reviews", REVIEW) for number in (1, 1, 1, 2)],
    *[("POST", "/cart/lines", LINE), ("DELETE", "/cart/lines", None)] * 4,
    *[("GET", "/cart/coupon", None), ("POST", "/cart/coupon", None)] * 4,
    *[("POST", "/orders/checkout", None)] * 5,
    *[("GET", "/orders/export", None)] * 3,
    *[("GET", "/orders/report", None)] * 8,
    *[("POST", "/account/login", each) for each in (WRONG, RIGHT, WRONG, RIGHT, WRONG)],
    *[("GET", "/account/partner", None)] * 4,
    *[("POST", "/account/codes", None)] * 4,
    *[("GET", "/admin/users", None)] * 12,
    *[("POST", f"/media/pictures?size={size}", None) for size in (1, 4, 4, 1, 1, 2)],
    *[("GET", f"/media/thumbnails/{name}.png", None) for name in ("a", "b/c") for _ in range(5)],
    *[("POST", "/media/pictures/1/tags", None), ("DELETE", "/media/pictures/2/tags", None)] * 3,
    *[("GET", "/v1/news/latest", None)] * 5,
    *[("GET", f"/v1/news/letters/archive/{year}", None) for year in (2025, 2026) for _ in range(4)],
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with node(any_binary()) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def answers(module: Any, url: str) -> list[Answer]:
    with redis.Redis.from_url(url) as client:
        client.flushall()
    found = []
    with TestClient(module.build(url), follow_redirects=False) as client:
        for asked in REQUESTS:
            for user in USERS:
                method, path, body = asked
                fields = {"x-user": user, "x-partner": "one" if user == "ann" else "two"}
                reply = client.request(method, path, json=body, headers=fields)
                found.append((user, asked, reply.status_code, reply.text, reply.headers.get("x-ratelimit-limit", "")))
        for _ in range(6):
            with client.websocket_connect("/news/live") as socket:
                assert socket.receive_text() == "open"
    return found


@pytest.fixture(scope="module")
def both(url: str) -> tuple[list[Answer], list[Answer]]:
    return answers(with_slowapi, url), answers(with_batchlimit, url)


def test_a_shop_that_moves_answers_every_request_the_same(both: tuple[list[Answer], list[Answer]]) -> None:
    theirs, ours = both
    assert [pair for pair in zip(theirs, ours, strict=True) if pair[0][:4] != pair[1][:4]] == []
    assert len(ours) == 384
    assert len({path for _, (_, path, _), status, *_ in ours if status == 429}) == 22


def test_a_shop_that_moves_tells_the_limit_where_slowapi_tells_one(both: tuple[list[Answer], list[Answer]]) -> None:
    told = [(his, mine) for his, mine in zip(*both, strict=True) if his[4] and his[1][1] not in PAGES]
    assert len(told) == 154
    assert [pair for pair in told if pair[0][4].split(", ")[0] != pair[1][4]] == []  # it may write a field twice
