"""The example for gRPC runs."""

import re

import pytest

from examples import grpc_limits
from tests.servers import Server


def test_the_example_refuses_the_fourth_call(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    valkey.client().delete(*(valkey.client().keys("*calls:ann*") or ["none"]))
    monkeypatch.setattr(grpc_limits, "STORE", valkey.url)
    grpc_limits.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["hello ann"] * 3
    assert re.fullmatch(r"RESOURCE_EXHAUSTED retry after \d+ s", lines[3])
