"""Lines of an access log, in the formats that servers write."""

import json
from datetime import UTC, datetime

import pytest

from batchlimit.cli.simulate.log import Bad, Line, instants, lines, pause

AT = datetime(2026, 11, 22, 10, 0, 5, tzinfo=UTC).timestamp()
COMMON = '203.0.113.9 - ann [22/Nov/2026:10:00:05 +0000] "GET /items/7?q=1 HTTP/1.1" 200 512'
READ = (AT, "GET", "/items/7?q=1", "203.0.113.9", "ann", 200)


def read(*texts: str) -> tuple[list[Line], int]:
    bad = Bad()
    return list(lines(iter(texts), bad)), bad.count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COMMON, READ),
        (COMMON + ' "https://example.org/" "Mozilla/5.0 (X11)"\n', READ),
        (COMMON.replace("10:00:05 +0000", "12:00:05 +0200"), READ),
        (COMMON.replace(" ann ", " - "), (*READ[:4], "", 200)),
        (COMMON.replace(" ann ", " ann smith "), (*READ[:4], "ann smith", 200)),
        (COMMON.replace(" 200 ", " - "), (*READ[:5], 0)),
        (COMMON.replace("203.0.113.9", "2001:db8::1"), (*READ[:3], "2001:db8::1", *READ[4:])),
        (COMMON.replace(" HTTP/1.1", ""), READ),
    ],
    ids=["common", "combined", "another zone", "no user", "a user of two words", "no status", "IPv6", "HTTP/0.9"],
)
def test_the_common_and_the_combined_format_are_read(text: str, expected: Line) -> None:
    assert read(text) == ([expected], 0)


@pytest.mark.parametrize(
    "told",
    [
        {"time": "2026-11-22T10:00:05+00:00", "request_method": "GET", "request_uri": "/items/7?q=1",
         "remote_addr": "203.0.113.9", "remote_user": "ann", "status": "200"},
        {"msec": f"{AT:.3f}", "request": "GET /items/7?q=1 HTTP/1.1", "remote_addr": "203.0.113.9", "user": "ann",
         "status": 200},
        {"ts": AT, "method": "GET", "path": "/items/7?q=1", "client_ip": "203.0.113.9", "user_id": "ann", "code": 200},
        {"timestamp": AT * 1000, "method": "GET", "url": "/items/7?q=1", "ip": "203.0.113.9", "username": "ann",
         "status_code": 200},
        {"time_local": "22/Nov/2026:10:00:05 +0000", "verb": "GET", "uri": "/items/7?q=1", "addr": "203.0.113.9",
         "user": "ann", "status": 200},
    ],
    ids=["nginx", "request in one", "seconds", "milliseconds", "local time"],
)  # fmt: skip
def test_json_lines_are_read_by_the_names_that_servers_use(told: dict[str, object]) -> None:
    assert read(json.dumps(told)) == ([READ], 0)


def test_what_json_does_not_tell_is_unknown() -> None:
    assert read('{"ts": 5.5, "path": "/"}') == ([(5.5, "GET", "/", "", "", 0)], 0)


@pytest.mark.parametrize(
    "text",
    ["rubbish", COMMON[:40], COMMON.replace("22/Nov", "99/Nov"), COMMON.replace("10:00:05", "10:xx:05")],
)
def test_what_is_no_request_is_counted_and_passed_over(text: str) -> None:
    assert read(COMMON, text, "\n", COMMON) == ([READ, READ], 1)


@pytest.mark.parametrize("text", ["{", "{}", '{"ts": "yesterday", "path": "/"}', '{"ts": 1}', "[1]", '{"path": "/"}'])
def test_json_that_is_no_request_is_counted(text: str) -> None:
    assert read('{"ts": 1, "path": "/"}', text)[1] == 1


def test_an_empty_log_has_no_lines() -> None:
    assert read() == ([], 0)
    assert read("\n", "  \n") == ([], 0)


def test_lines_of_one_instant_come_together_and_time_never_goes_back() -> None:
    found = [("GET", "/", "", "", 200)] * 5
    given: list[Line] = [(at, *rest) for at, rest in zip([1.0, 1.0, 3.0, 2.0, 4.0], found, strict=True)]
    assert [(at, len(together)) for at, together in instants(given)] == [(1.0, 2), (3.0, 2), (4.0, 1)]


@pytest.mark.parametrize(("at", "count", "expected"), [(5.0, 4, 0.25), (5.0, 1, 1.0), (5.25, 4, 0.0)])
def test_lines_of_a_whole_second_are_spread_over_it(at: float, count: int, expected: float) -> None:
    assert pause(at, count) == expected
