"""A table of laws rounds nothing up, and says who does better than ours."""

from math import nan

from benchmarks.queueing.contestants import CONTESTANTS, LAWS
from benchmarks.queueing.laws import OURS
from benchmarks.queueing.report import losses, verdicts
from benchmarks.queueing.results import Results
from benchmarks.queueing.seeds import Runs
from benchmarks.queueing.tally import Figures


def runs(*goodputs: float, false: float = nan) -> Runs[Figures]:
    return Runs(tuple(Figures(each, false, 0.1, 0.0, 0.02, 0.05) for each in goodputs))


def results(ours: Runs[Figures], theirs: Runs[Figures]) -> Results:
    return {letter: {who: ours if who == OURS else theirs for who in CONTESTANTS} for letter in "AB"}


def test_what_falls_short_by_a_hair_falls_short() -> None:
    rows = {row[0]: row[1:] for row in verdicts(results(runs(0.93999, false=0.0), runs(0.94, 0.95, false=0.0)))}
    assert rows[OURS] == ["0.939 in A", "0.00 %", "no"]
    assert rows["AIMD, 5 s"][-1] == "yes"


def test_false_rejections_fail_as_well() -> None:
    assert {row[-1] for row in verdicts(results(runs(1.0, false=0.021), runs(1.0, false=0.021)))} == {"no"}


def test_who_does_better_is_named() -> None:
    rows = list(losses(results(runs(0.9), runs(0.95))))
    assert [row[0][0] for row in rows] == ["A", "B"]
    assert rows[0][-1] in LAWS
    assert list(losses(results(runs(0.95), runs(0.953)))) == []
