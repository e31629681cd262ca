"""Samples in, rows out: what each key used and refused each second."""

import pytest

from batchlimit.cli.top.board import FIELDS, Board, BucketSample, Row, sampled
from batchlimit.quota.quota import Quota

QUOTA = Quota(10.0, 100)
BEGAN = 1_700_000_000.0
FULL = {
    "quota": "10/1:100",
    "epoch": f"{BEGAN * 1e6:.0f}",
    "level": "40",
    "outstanding": "20",
    "shares": "3 3 12",
    "times": "5000000 0 0 0",
    "used": "520",
    "refused": "70",
    "shadow": "9",
}


def values(**changed: str | None) -> list[str | None]:
    fields: dict[str, str | None] = {**FULL, **changed}
    return [fields.get(name) for name in FIELDS]


def sample(
    at: float, used: int, refused: int = 0, key: str = "ann", epoch: float = 0.0, shadow: int = 0
) -> BucketSample:
    return BucketSample(key, at, QUOTA, 0.5, 10, 2, epoch, used, refused, shadow)


def only(board: Board) -> Row:
    (row,) = board.rows()
    return row


@pytest.mark.parametrize(
    ("changed", "at", "expected"),
    [
        ({}, 5.0, (0.4, 20, 3, 500, 70)),
        ({}, 5.5, (0.45, 20, 3, 500, 70)),
        ({}, 6.0, (0.5, 20, 0, 500, 70)),
        ({}, 99.0, (0.8, 20, 0, 500, 70)),
        ({"level": "-5"}, 5.0, (0.0, 20, 3, 500, 70)),
        ({"quota": "10/1:100 1/1:200", "level": "40 20"}, 5.0, (0.1, 20, 3, 500, 70)),
        ({"used": None, "refused": None}, 5.0, (0.4, 20, 3, 0, 0)),
        ({"used": "19"}, 5.0, (0.4, 20, 3, 0, 70)),
    ],
    ids=["as it lies there", "refilled since", "nobody asked for a second", "no room for more", "in debt",
         "the poorest bandwidth", "an older version wrote it", "refunds"],
)  # fmt: skip
def test_a_bucket_is_read_from_some_of_its_fields(
    changed: dict[str, str | None], at: float, expected: tuple[float, ...]
) -> None:
    found = sampled("ann", values(**changed), BEGAN + at)
    assert found is not None
    assert (found.level, found.held, found.instances, found.used, found.refused) == pytest.approx(expected)


@pytest.mark.parametrize("rank", ["", "@"])
def test_a_small_bucket_is_read_too(rank: str) -> None:
    there = {"q": "10/1:100" + rank, "s": f"{BEGAN * 1_000_000:.0f} 5000000 -9 20 7 40", "refused": "3"}
    found = sampled("ann", [there.get(name) for name in FIELDS], BEGAN + 6.0)
    assert found is not None
    assert (found.level, found.held, found.instances, found.used, found.refused) == pytest.approx((0.5, 0, 0, 7, 3))


@pytest.mark.parametrize("name", ["quota", "epoch", "level", "outstanding", "shares", "times"])
@pytest.mark.parametrize("damage", [None, "", "?"])
def test_what_is_no_bucket_is_no_sample(name: str, damage: str | None) -> None:
    assert sampled("ann", values(**{name: damage}), BEGAN) is None


@pytest.mark.parametrize(
    ("samples", "used", "refused", "shadow", "is_average"),
    [
        ([sample(10.0, 50, refused=20, shadow=30)], 5.0, 2.0, 3.0, True),
        ([sample(10.0, 50), sample(11.0, 40)], 0.0, 0.0, 0.0, False),
        ([sample(10.0, 50), sample(11.0, 5, epoch=10.5)], 5.0, 0.0, 0.0, True),
        ([sample(10.0, 50), sample(10.0, 60)], 5.0, 0.0, 0.0, True),
    ],
    ids=["seen once: since its bucket began", "no rate is negative", "began anew", "the same instant twice"],
)
def test_a_key_has_the_rates_that_its_samples_tell(
    samples: list[BucketSample], used: float, refused: float, shadow: float, is_average: bool
) -> None:
    board = Board()
    for each in samples:
        board.take([each])
    row = only(board)
    assert (row.used, row.refused, row.shadow, row.is_average) == (used, refused, shadow, is_average)


def test_rates_are_those_of_the_last_three_looks() -> None:
    board = Board()
    for at, used, refused in [(10.0, 0, 0), (11.0, 30, 0), (12.0, 30, 6), (13.0, 60, 6), (14.0, 60, 6)]:
        board.take([sample(at, used, refused)])
    row = only(board)
    assert (row.used, row.refused, row.is_average) == (10.0, 2.0, False)
    assert row.trend == (30.0, 15.0, 20.0, 10.0)


def test_keys_that_have_gone_or_were_not_seen_for_long_are_forgotten() -> None:
    board = Board()
    board.take([sample(10.0, 1, key=key) for key in ("ann", "bob", "cyd")])
    board.take([], gone=["ann"])
    board.take([sample(35.0, 2, key="cyd")])
    assert sorted(row.key for row in board.rows()) == ["bob", "cyd"]
    board.take([sample(41.0, 2, key="cyd")])
    assert [row.key for row in board.rows()] == ["cyd"]


def test_the_hottest_keys_use_or_refuse_the_most() -> None:
    board = Board()
    board.take([sample(10.0, used=1, key="idle"), sample(10.0, used=50, key="used")])
    board.take([sample(10.0, used=0, refused=90, key="refused")])
    assert board.hottest(2) == ["refused", "used"]
    assert sorted(board.hottest(9)) == ["idle", "refused", "used"]


def test_a_board_remembers_the_hottest_of_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlimit.cli.top.board._MOST", 10)
    board = Board()
    board.take([sample(10.0, used=each, key=str(each)) for each in range(11)])
    assert sorted(int(row.key) for row in board.rows()) == [6, 7, 8, 9, 10]
