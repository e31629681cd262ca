"""Ours is what the page says of it, on the application that the others are measured with."""

import asyncio

from benchmarks.web_rivals import LIMIT, PATHS, call, with_batchlimit


def test_every_route_is_limited_and_every_response_starts_once() -> None:
    app = with_batchlimit()

    async def main() -> dict[str, list[tuple[str, int, str]]]:
        return {path: [await call(app, path) for _ in range(LIMIT + 1)] for path in PATHS}

    for replies in asyncio.run(main()).values():
        assert replies == [("200", 1, "")] * LIMIT + [("429", 1, "")]
