"""The example for gRPC runs, and its page shows it as it is."""

import re
from pathlib import Path

import pytest

from tests.servers import Server

ROOT = Path(__file__).parents[2]


def test_the_example_refuses_the_fourth_call(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples import grpc_limits

    valkey.client().delete(*(valkey.client().keys("batchlimit:*calls:ann*") or ["none"]))
    monkeypatch.setattr(grpc_limits, "STORE", valkey.url)
    grpc_limits.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["hello ann"] * 3
    assert re.fullmatch(r"RESOURCE_EXHAUSTED retry after \d+ s", lines[3])


def test_the_code_of_the_page_is_that_of_the_example() -> None:
    page = (ROOT / "docs/how-to/grpc.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    compile(code[1], "grpc.md", "exec")
    example = (ROOT / "examples/grpc_limits.py").read_text()
    for part in ("def identify", '    Rule("calls", "3/minute"', '    Rule("all", "5000/s"'):
        line = next(each for each in code[1].splitlines() if each.startswith(part))
        assert line.strip() in example
