"""The suites of other limiters, run over ours: exactly those tests fail of which the page tells why."""

from collections import Counter
from pathlib import Path

import pytest

from tests.depth import only_deep
from tests.nodes import node
from tests.peers.fetched import fetch, outcomes
from tests.peers.page import shown
from tests.peers.suites import SUITES, Suite
from tests.servers import any_binary

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "peers-tests.md"


@only_deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES, ids=str)
def test_exactly_those_tests_of_a_peer_fail_whose_reason_is_told(suite: Suite, tmp_path: Path) -> None:
    unpacked = fetch(suite.package, suite.version, suite.needs, tmp_path, suite.archive)
    found: dict[str, str] = {}
    with node(any_binary()) as server:
        for path in unpacked.glob("tests/**/*.py") if suite.port else ():
            path.write_text(path.read_text("utf-8").replace(str(suite.port), str(server.port)), "utf-8")
        for run in suite.runs:
            found |= outcomes(unpacked, run, server.url)
    expected = sorted(name for names in suite.failing.values() for name in names)
    assert sorted(name for name, outcome in found.items() if outcome == "failed") == expected
    assert Counter(found.values())["passed"] == suite.passed
    assert Counter(found.values())["skipped"] == suite.skipped


def test_the_page_tells_what_these_tests_expect() -> None:
    """`python -m tests.peers.page` prints it."""
    assert shown(SUITES) in PAGE.read_text("utf-8")
