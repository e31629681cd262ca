"""What is measured is what it is called: grants are granted, refusals refused."""

from typing import Any

import pytest

from benchmarks.calls import OVERRIDDEN, cases
from benchmarks.footprint import footprint
from benchmarks.pipeline import pipelined
from tests.servers import Server


@pytest.mark.parametrize(
    ("name", "replies"),
    [
        ("an INCR", [1, 2, 3, 4]),
        ("a minimal token bucket", [1, 1, 1, 1]),
        ("take: granted, 1 instance", [20, 20, 20, 20]),
        ("take: granted, 20 instances", [20, 20, 20, 20]),
        ("take of two bandwidths", [20, 20, 20, 20]),
        ("take: granted, 1 instance, by an override", [20, 20, 20, 20]),
        ("take and give_back in turn", [20, 20, 20, 20]),
        ("take: refused", [1, 0, 0, 0]),
    ],
)
def test_each_case_is_what_its_name_says(valkey: Server, name: str, replies: list[int]) -> None:
    with valkey.client() as client:
        client.flushdb()
        commands = list(cases(client)[name](1, 4))
        found: list[Any] = pipelined(client, commands)
        client.flushdb()
    assert [reply[0] if isinstance(reply, list) else reply for reply in found] == replies


def test_an_override_is_asked_for_as_often_as_limiters_do_it(valkey: Server) -> None:
    with valkey.client() as client:
        client.flushdb()
        found: list[Any] = pipelined(client, list(cases(client)[OVERRIDDEN](1, 20)))
        client.flushdb()
    assert [reply[9] for reply in found].count(7) == 2, "the revision"


def test_a_bucket_takes_some_hundred_bytes(valkey: Server) -> None:
    """How many exactly is for the benchmark: of so few the server's own tables take as much."""
    with valkey.client() as client:
        client.flushdb()
        cases(client)
        bucket, _, instance = footprint(client, 1_000)
        client.flushdb()
    assert 200 < bucket.value < 400
    assert 40 < instance.value < 100
