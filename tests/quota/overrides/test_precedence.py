"""The table of the documents: what holds for a key, by the code, by overrides, by trials."""

import random

import pytest

from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.overrides.override import KeyRule, Override
from batchlimit.quota.overrides.overrides import InForce, Overrides
from batchlimit.quota.quota import Quota

CODE, LOW, LOWER, TRIED, NOTHING = Quota(100.0), Quota(10.0), Quota(5.0), Quota(7.0), Quota(0.0)
OPEN_AWAY = FailurePolicy.open()


def quota(name: str, each: Quota = LOW, until: float | None = None, at: float = 0.0) -> Override:
    return Override(name, each, until, at)


def opened(name: str, until: float | None = None, at: float = 0.0) -> Override:
    return Override(name, None, until, at, mode="open")


def shadow(name: str, each: Quota | None = None, until: float | None = None) -> Override:
    return Override(name, each, until, mode="shadow")


def more(name: str) -> Override:
    return Override(name, None, weight=3, on_failure=OPEN_AWAY)


PLAIN = KeyRule(CODE)


@pytest.mark.parametrize(
    ("overrides", "code", "expected"),
    [
        ([], PLAIN, PLAIN),
        ([quota("*")], PLAIN, KeyRule(LOW)),
        ([quota("*"), quota("search:*", LOWER)], PLAIN, KeyRule(LOWER)),  # more characters that are no wildcards
        ([quota("search:ann"), quota("search:an?", LOWER)], PLAIN, KeyRule(LOW)),  # the key itself
        ([quota("sea*", at=1.0), quota("sea?*", LOWER, at=2.0)], PLAIN, KeyRule(LOWER)),  # as special: the later one
        ([quota("search:ann", until=50.0), quota("*", LOWER)], PLAIN, KeyRule(LOWER)),  # one that has ended
        ([quota("search:*", until=50.0)], PLAIN, PLAIN),
        # Of quota, hold, open and shadow the first in that order counts, whatever it says.
        ([opened("*"), quota("search:*")], PLAIN, KeyRule(LOW)),
        ([quota("*"), opened("search:*")], PLAIN, KeyRule(CODE, "open")),
        ([quota("*", NOTHING), opened("search:*", until=50.0)], PLAIN, KeyRule(NOTHING)),
        ([opened("search:ann"), quota("search:*", NOTHING)], PLAIN, KeyRule(CODE, "open")),
        ([shadow("*"), quota("search:*")], PLAIN, KeyRule(LOW)),
        ([quota("*"), shadow("search:*")], PLAIN, KeyRule(CODE, "shadow")),
        # The mode of the code lasts until an override names a quota or a mode.
        ([], KeyRule(CODE, "shadow"), KeyRule(CODE, "shadow")),
        ([quota("*")], KeyRule(CODE, "shadow"), KeyRule(LOW)),
        ([more("*")], KeyRule(CODE, "shadow"), KeyRule(CODE, "shadow", None, 3, OPEN_AWAY)),
        # Weight and failure policy: an override that names neither leaves them to the code.
        ([more("*")], PLAIN, KeyRule(CODE, "enforce", None, 3, OPEN_AWAY)),
        ([more("*"), quota("search:*")], PLAIN, KeyRule(LOW)),
        # A trial stands beside, and of trials the first in the same order.
        ([shadow("*", TRIED)], PLAIN, KeyRule(CODE, trial=TRIED)),
        ([shadow("*", TRIED), quota("search:*")], PLAIN, KeyRule(LOW, trial=TRIED)),
        ([shadow("*", TRIED), opened("search:*")], PLAIN, KeyRule(CODE, "open", TRIED)),
        ([shadow("*", TRIED), shadow("search:*", LOWER)], PLAIN, KeyRule(CODE, trial=LOWER)),
        ([shadow("search:ann", TRIED, until=50.0), shadow("*", LOWER)], PLAIN, KeyRule(CODE, trial=LOWER)),
        ([shadow("search:*", TRIED), more("*")], PLAIN, KeyRule(CODE, "enforce", TRIED, 3, OPEN_AWAY)),
    ],
)
def test_what_holds_for_a_key(overrides: list[Override], code: KeyRule, expected: KeyRule) -> None:
    for shuffle in range(5):
        mixed = random.Random(shuffle).sample(overrides, len(overrides))
        assert InForce.at(Overrides(1, mixed), 100.0).rule("search:ann", code) == expected
