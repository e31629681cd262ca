"""Every store keeps the contract of stores, on every server: batchlimit/testing/contract has the rules."""

import pytest

from batchlimit.stores import Store
from batchlimit.testing.contract.check import StoreRule, store_rules
from tests.depth import depth


@pytest.mark.parametrize("rule", store_rules(depth(1, 10)), ids=lambda rule: rule.name)
def test_a_store_keeps_this_rule(rule: StoreRule, store: Store) -> None:
    rule.check(store)


@pytest.mark.parametrize(
    "store", ["sentinel", "tls", "cluster awaited", "memory awaited", "fakeredis awaited"], indirect=True
)
def test_a_store_that_is_reached_in_another_way_lends_as_well(store: Store) -> None:
    """With --deep it keeps every rule."""
    store_rules(1)[0].check(store)
