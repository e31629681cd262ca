"""The memory of keys of a concurrency limiter: the keys that nobody uses leave it."""

from benchmarks.permit_keys import crowded, figures, passing
from tests.depth import only_deep


def test_of_keys_that_had_one_call_each_as_many_are_kept_as_the_limiter_says() -> None:
    assert passing(12_000).kept == 10_000


@only_deep
def test_keys_that_were_under_way_leave_when_they_are_over() -> None:
    seen = crowded(12_000)
    assert seen.kept == 10_000
    assert seen.objects < 0.95


@only_deep
def test_a_figure_says_whether_the_memory_was_bounded() -> None:
    assert {figure.name: figure.verdict for figure in figures(1000)}["keys kept"] == "ok"
