"""What a key that somebody presses changes, and what is drawn."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from batchlimit.cli.top.board import FIELDS, Board, BucketSample, Row, sampled
from batchlimit.cli.top.sampler import Cost
from batchlimit.cli.top.screen import ScreenScene, Sort, View, bar, drawn, sparkline
from batchlimit.quota.quota import Quota


def row(
    key: str,
    used: float = 0.0,
    refused: float = 0.0,
    level: float = 1.0,
    held: int = 0,
    instances: int = 1,
    shadow: float = 0.0,
) -> Row:
    return Row(key, "10/s", used, refused, shadow, level, held, instances, (1.0, used), False)


ROWS = [
    row("search:ann", 5.0, 1.0, 0.5, 3, 2, shadow=4.0),
    row("search:bob", 9.0, 0.0, 0.1, 2, 4, shadow=2.0),
    row("export", 1.0, 7.0, 0.9, 8, 3),
]
EXPORT, ANN, BOB = "export", "search:ann", "search:bob"


@pytest.mark.parametrize(
    ("pressed", "expected"),
    [
        ("", [BOB, ANN, EXPORT]),
        ("s", [EXPORT, ANN, BOB]),
        ("ss", [ANN, BOB, EXPORT]),
        ("sss", [BOB, ANN, EXPORT]),
        ("ssss", [EXPORT, ANN, BOB]),
        ("sssss", [BOB, EXPORT, ANN]),
        ("ssssss", [EXPORT, ANN, BOB]),
        ("sssssss", [BOB, ANN, EXPORT]),
        ("r", [EXPORT, ANN, BOB]),
        ("/search\r", [BOB, ANN]),
        ("/*:a*\r", [ANN]),
        ("/exq\x7fp", [EXPORT]),
        ("/nothing\r", []),
        ("/nothing\x1b", [BOB, ANN, EXPORT]),
        ("/export\r\x1b", [BOB, ANN, EXPORT]),
        ("/export\rs", [EXPORT]),
    ],
    ids=repr,
)
def test_keys_sort_and_filter_rows(pressed: str, expected: list[str]) -> None:
    view = View()
    assert not any(view.press(key) for key in pressed)
    assert [each.key for each in view.chosen(ROWS)] == expected


@pytest.mark.parametrize(
    ("pressed", "is_over"), [("q", True), ("\x04", True), ("/q", False), ("/q\x1bq", True), ("x", False)], ids=repr
)
def test_q_leaves_unless_it_is_part_of_a_filter(pressed: str, is_over: bool) -> None:
    view = View()
    assert [view.press(key) for key in pressed] == [False] * (len(pressed) - 1) + [is_over]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, "··········"),
        (1.0, "██████████"),
        (0.5, "█████·····"),
        (0.0125, "▏·········"),
        (7.0, "█" * 10),
        (-1.0, "·" * 10),
    ],
)
def test_a_bar_is_ten_characters(share: float, expected: str) -> None:
    assert bar(share) == expected


@pytest.mark.parametrize(
    ("rates", "expected"), [((), ""), ((0.0, 0.0), "▁▁"), ((0.0, 50.0, 100.0), "▁▅█"), ((7.0,), "█")], ids=str
)
def test_a_sparkline_is_as_high_as_the_highest_rate(rates: tuple[float, ...], expected: str) -> None:
    assert sparkline(rates) == expected


def screen(view: View, cost: Cost, room: int = 9, width: int = 120, rows: Sequence[Row] = ROWS) -> str:
    out = Console(file=io.StringIO(), width=width)
    out.print(drawn(ScreenScene("redis://there", 0.0, 10.0, cost), rows, view, room, width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_screen_says_what_looking_cost_and_how_much_was_seen() -> None:
    text = screen(View(), Cost(1234, 3.21, False, 0.12))
    assert "1,234 commands, 3.2 ms of the server (budget 10 ms)" in text
    assert ("round of all buckets: 12%" in text, "guessed" in text) == (True, False)
    assert "all buckets seen" in screen(View(), Cost(1, 1.0, False, 1.0))
    assert "guessed" in screen(View(), Cost(1, 1.0, True, 1.0))


def test_the_screen_names_the_order_and_the_filter_and_the_rows_that_have_no_room() -> None:
    assert "REFUSED/S▼" in screen(View(sort=Sort.REFUSED), Cost(1, 1.0, False, 1.0))
    assert "LEVEL▲" in screen(View(sort=Sort.LEVEL, is_reversed=True), Cost(1, 1.0, False, 1.0))
    assert "1 more rows" in screen(View(), Cost(1, 1.0, False, 1.0), room=2)
    assert "filter: sea▏" in screen(View(pattern="sea", is_typing=True), Cost(1, 1.0, False, 1.0))


def test_a_key_of_markup_is_shown_as_it_is() -> None:
    assert "[red]x[/]" in screen(View(), Cost(1, 1.0, False, 1.0), rows=[row("[red]x[/]")])


@pytest.mark.parametrize(
    ("width", "sort", "there"),
    [
        (40, Sort.USED, {"USED/S▼", "REFUSED/S"}),
        (40, Sort.INSTANCES, {"USED/S", "INSTANCES▼"}),
        (80, Sort.USED, {"USED/S▼", "REFUSED/S", "LEVEL"}),
        (80, Sort.SHADOW, {"USED/S", "REFUSED/S", "SHADOW/S▼", "LEVEL"}),
        (160, Sort.USED, {"QUOTA", "USED/S▼", "TREND", "REFUSED/S", "SHADOW/S", "LEVEL", "HELD", "INSTANCES"}),
    ],
)
def test_a_narrow_screen_keeps_the_key_and_the_order_column(width: int, sort: Sort, there: set[str]) -> None:
    lines = screen(View(sort=sort), Cost(1, 1.0, False, 1.0), width=width, rows=[row("user:1234567", 5.0)]).splitlines()
    assert there <= set(lines[4].split())
    assert lines[5].startswith("user:1234567")
    assert (len(lines), max(map(len, lines)) <= width) == (8, True), "no line is folded: the screen has as many"


@pytest.mark.parametrize(("width", "seen"), [(40, 20), (80, 26), (120, 40)])
def test_a_long_key_has_a_third_of_the_screen_or_twenty_characters(width: int, seen: int) -> None:
    long = row("x" * 200, 123456.0, 99999.0, held=1_000_000, instances=12345, shadow=5.0)
    line = screen(View(), Cost(1, 1.0, False, 1.0), width=width, rows=[long]).splitlines()[5]
    assert line.startswith("x" * (seen - 1))


# Samples in, rows out: what each key used and refused each second
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


def values(**changed: str | None) -> dict[str, str]:
    fields: dict[str, str | None] = {**FULL, **changed}
    return {name: value for name, value in fields.items() if name in FIELDS and value is not None}


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
        ({}, 12.9, (0.8, 20, 0, 500, 70)),
        ({}, 13.0, (0.8, 0, 0, 520, 70)),
        ({}, 99.0, (1.0, 0, 0, 520, 70)),
        ({"level": "-5"}, 5.0, (0.0, 20, 3, 500, 70)),
        ({"quota": "10/1:100 1/1:200", "level": "40 20"}, 5.0, (0.1, 20, 3, 500, 70)),
        ({"used": None, "refused": None}, 5.0, (0.4, 20, 3, 0, 0)),
        ({"used": "19"}, 5.0, (0.4, 20, 3, 0, 70)),
    ],
    ids=["as it lies there", "refilled since", "nobody asked for a second", "no room for more",
         "no lease lasts so long", "full", "in debt", "the poorest bandwidth", "an older version wrote it", "refunds"],
)  # fmt: skip
def test_a_bucket_is_read_from_some_of_its_fields(changed: dict[str, str | None], at: float, expected: Any) -> None:
    found = sampled("ann", values(**changed), BEGAN + at)
    assert found is not None
    assert (found.level, found.held, found.instances, found.used, found.refused) == pytest.approx(expected)


@pytest.mark.parametrize("rank", ["", "@"])
def test_a_small_bucket_is_read_too(rank: str) -> None:
    there = {"q": "10/1:100" + rank, "s": f"{BEGAN * 1_000_000:.0f} 5000000 -9 20 7 40", "refused": "3", "h": "@8 1 5"}
    found = sampled("ann", {name: there[name] for name in FIELDS if name in there}, BEGAN + 6.0)
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
