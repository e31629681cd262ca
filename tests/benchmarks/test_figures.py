"""How a benchmark reports: each figure as soon as it is there, or all of them in one document."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.figures import Figure, report

FIGURES = [Figure("a", 2.0, "ns", at_most=3.0), Figure("b", 4.0, at_most=3.0)]


def test_a_figure_is_printed_before_the_next_one_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    heard = []

    def measured() -> Iterator[Figure]:
        for figure in FIGURES:
            yield figure
            heard.append(capsys.readouterr().out)

    assert report(measured(), as_document=False, ran="on a machine") == FIGURES
    assert heard == [f"on a machine\n{FIGURES[0]}\n", f"{FIGURES[1]}\n"]


def test_a_document_holds_all_of_them_with_their_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(iter(FIGURES), as_document=True) == FIGURES
    told = json.loads(capsys.readouterr().out)["figures"]
    assert [(each["name"], each["verdict"]) for each in told] == [("a", "ok"), ("b", "short")]
