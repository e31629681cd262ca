"""gRPC: the server and the client as they stand, in frozen time."""

import re

import pytest

from batchlimit.testing import FrozenLimits
from examples import grpc_limits


def test_a_user_has_three_calls_a_minute(frozen_limits: FrozenLimits, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        grpc_limits.main()
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == ["hello ann"] * 3
        told = re.fullmatch(r"RESOURCE_EXHAUSTED retry after (\d+) s", lines[3])
        assert told is not None
        assert int(told[1]) >= 20
        frozen_limits.advance("1m")
