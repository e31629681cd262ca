"""Each alert of deploy/ fires by a real fault in a real fleet, and ends with it."""

from collections.abc import Iterator

import pytest
import yaml

from tests.chaos.alerts.drill import DRILLS, Drill
from tests.chaos.alerts.town import RULES, Town, faster, town
from tests.depth import only_deep


@pytest.fixture(scope="module")
def a_town() -> Iterator[Town]:
    with town() as found:
        yield found


@only_deep
@pytest.mark.parametrize("drill", DRILLS, ids=str)
def test_an_alert_fires_while_its_fault_lasts_and_ends_with_it(drill: Drill, a_town: Town) -> None:
    drill.hold(a_town)


def test_there_is_a_drill_for_every_alert() -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == {alert for drill in DRILLS for alert in drill.alerts}


def test_ranges_and_for_are_shorter_by_the_factor_and_nothing_else_is() -> None:
    rules = "expr: rate(a_5m[5m]) > 0.2\nfor: 10m\nsummary: 10m [x] after 1h\nfor: 1h"
    assert faster(rules, 60) == "expr: rate(a_5m[5000ms]) > 0.2\nfor: 10000ms\nsummary: 10m [x] after 1h\nfor: 60000ms"
