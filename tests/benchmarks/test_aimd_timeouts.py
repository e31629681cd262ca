"""The timeouts of AIMD are compared, each row one length of calls."""

import pytest

from benchmarks import aimd_timeouts
from tests.depth import depth


def test_a_timeout_far_above_the_deadline_lets_an_overload_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["aimd_timeouts", "--seconds", f"{depth(20, 40)}"])
    monkeypatch.setattr(aimd_timeouts, "CALLS", (0.05,))
    monkeypatch.setattr(aimd_timeouts, "TIMEOUTS", depth((0.2, 5.0), aimd_timeouts.TIMEOUTS))
    aimd_timeouts.main()
    *_, row = capsys.readouterr().out.strip().splitlines()
    shares = [float(cell) for cell in row.strip("| ").split("|")[1:]]
    assert len(shares) == len(aimd_timeouts.TIMEOUTS)
    assert min(shares) == shares[-1] < 0.1 < 0.5 < max(shares)
