import pytest

from batchlimit.concurrency.laws import log10, square_root


@pytest.mark.parametrize(
    ("limit", "logarithm"),
    [(0, 1), (1, 1), (10, 1), (99, 1), (100, 2), (999, 2), (1000, 3), (9999, 3), (10000, 4), (2**31 - 1, 9)],
)
def test_a_logarithm_is_rounded_down_and_at_least_one(limit: int, logarithm: int) -> None:
    assert log10(limit) == logarithm


@pytest.mark.parametrize(
    ("limit", "root"), [(0, 4), (1, 4), (24, 4), (25, 5), (35, 5), (36, 6), (999, 31), (1000, 31), (2500, 50)]
)
def test_a_root_is_rounded_down_and_at_least_four(limit: int, root: int) -> None:
    assert square_root(limit) == root
