"""The benchmark of `simulate` replays a log whose lines are the same each time."""

import json
import sys

import pytest

from benchmarks import replay_error, replay_speed


@pytest.mark.parametrize(("words", "by_limiters"), [([], 0.9), (["--exact"], 1.0)])
def test_it_tells_how_many_are_decided_by_limiters(
    words: list[str], by_limiters: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay_speed", "--lines", "20000", "--json", *words])
    replay_speed.main()
    told = {each["name"]: each["value"] for each in json.loads(capsys.readouterr().out)["figures"]}
    assert told["requests replayed, per second of processor time"] > 0
    assert told["decided by limiters"] <= by_limiters


def test_short_logs_are_replayed_with_no_error_where_nothing_is_short() -> None:
    (rules, *_), (traffic, *_) = replay_error._RULES.values(), replay_error._TRAFFIC
    assert replay_error.errors(rules, traffic, 30)[:2] == (0.0, 0.0)
