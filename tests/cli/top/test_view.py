"""What a key that somebody presses changes, and what is drawn."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from batchlimit.cli.top.board import Row
from batchlimit.cli.top.sampler import Cost
from batchlimit.cli.top.screen import ScreenScene, Sort, View, bar, drawn, sparkline


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
def test_a_narrow_screen_keeps_the_key_and_the_order_and_lets_less_important_columns_go(
    width: int, sort: Sort, there: set[str]
) -> None:
    lines = screen(View(sort=sort), Cost(1, 1.0, False, 1.0), width=width, rows=[row("user:1234567", 5.0)]).splitlines()
    assert there <= set(lines[4].split())
    assert lines[5].startswith("user:1234567")
    assert (len(lines), max(map(len, lines)) <= width) == (8, True), "no line is folded: the screen has as many"


@pytest.mark.parametrize(("width", "seen"), [(40, 20), (80, 26), (120, 40)])
def test_a_long_key_has_a_third_of_the_screen_or_twenty_characters(width: int, seen: int) -> None:
    long = row("x" * 200, 123456.0, 99999.0, held=1_000_000, instances=12345, shadow=5.0)
    line = screen(View(), Cost(1, 1.0, False, 1.0), width=width, rows=[long]).splitlines()[5]
    assert line.startswith("x" * (seen - 1))
