"""The laws replay what the originals answered: every row, to the last bit."""

from functools import cache

import pytest

from tests.concurrency.laws.traces import GOLDEN, Trace, golden, law_of, left_the_track, traces


@cache
def _traces(file: str) -> dict[str, Trace]:
    return traces(GOLDEN / file)


@pytest.mark.parametrize(("file", "scenario"), golden())
def test_a_law_replays_its_original_row_for_row(file: str, scenario: str) -> None:
    trace = _traces(file)[scenario]
    assert left_the_track(trace, law_of(trace.algorithm, trace.config)) is None


def test_a_law_that_leaves_the_track_is_told_where() -> None:
    trace = _traces("aimd_default.json.gz")["steady"]
    rows = [list(row) for row in trace.rows]
    rows[7][4] += 1
    said = left_the_track(trace._replace(rows=rows), law_of(trace.algorithm, trace.config))
    assert said is not None
    assert said.startswith("row 7 ")
    assert "limit is" in said
