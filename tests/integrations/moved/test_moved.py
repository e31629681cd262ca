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
Asked = tuple[str, str, Any]
REQUESTS: list[Asked] = [
    *[("GET", path, None) for path in ("/", "/about", "/old", "/health") for _ in range(6)],
    *[("GET", "/products/search?q=product", None)] * 7,
    *[("GET", f"/products/{number}", None) for number in (1, 2, 1, 99, 1, 2, 1, 1, 99, 99, 99)],
    *[("GET", "/products/1/reviews", None)] * 5,
    *[("POST", f"/products/{number}/reviews", REVIEW) for number in (1, 1, 1, 2)],
    *[("GET", "/cart", None)] * 3,
    *[("POST", "/cart/lines", LINE), ("DELETE", "/cart/lines", None)] * 4,
    *[("GET", "/cart/coupon", None), ("POST", "/cart/coupon", None)] * 4,
    *[("POST", "/orders/checkout", None)] * 5,
    *[("GET", "/orders/export", None)] * 3,
    *[("GET", "/orders/report", None)] * 8,
    *[("POST", "/account/login", each) for each in (WRONG, RIGHT, WRONG, RIGHT, WRONG)],
    *[("GET", "/account/partner", None)] * 4,
    *[("POST", "/account/codes", None)] * 4,
    *[("GET", "/admin/users", None)] * 12,
    *[("POST", "/admin/prices/1", None), ("POST", "/admin/prices/2", None)] * 3,
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with node(any_binary()) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def answers(module: Any, url: str) -> list[tuple[str, Asked, int, str]]:
    with redis.Redis.from_url(url) as client:
        client.flushall()
    found = []
    with TestClient(module.build(url), follow_redirects=False) as client:
        for asked in REQUESTS:
            for user in USERS:
                method, path, body = asked
                fields = {"x-user": user, "x-partner": "one" if user == "ann" else "two"}
                reply = client.request(method, path, json=body, headers=fields)
                found.append((user, asked, reply.status_code, reply.text))
    return found


def test_a_shop_that_moves_answers_every_request_the_same(url: str) -> None:
    theirs, ours = answers(with_slowapi, url), answers(with_batchlimit, url)
    assert [pair for pair in zip(theirs, ours, strict=True) if pair[0] != pair[1]] == []
    refused = {path for _, (_, path, _), status, _ in ours if status == 429}
    assert len(refused) >= 17
