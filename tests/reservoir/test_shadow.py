"""What a key does in shadow mode, and with a quota on trial: it decides and counts, and refuses nobody."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.overrides.override import KeyRule, Override
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import Trial
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter
from tests.reservoir.entry import DEAD, HUNDRED, PATIENT, Entry
from tests.reservoir.ruled import Ruled, Rules
from tests.reservoir.world import Waking, figures

SHADOW = Override("key", None, mode="shadow")


def in_shadow(caller: Ruled, now: float = 0.0) -> None:
    caller.learn(SHADOW, at=now)
    caller.reservoir.to_wake()


def told(caller: Entry) -> tuple[int, int, int]:
    """Tokens admitted, those of them that were to be refused, and refused."""
    counted = figures(caller.reservoir)
    return counted.admitted, caller.reservoir.state.shadow_refused, counted.refused


@pytest.mark.parametrize("deadline", [NO_WAIT, PATIENT, 5.0])
def test_who_was_to_be_refused_or_to_wait_is_admitted_at_the_first_answer_and_counted(deadline: float) -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    waiter = caller.join(7, deadline)
    caller.refuse(caller.fetch(waiter))
    assert isinstance(waiter.verdict, Admit)
    assert (waiter.verdict.before, waiter.verdict.is_shadow) == (math.inf, True)
    assert told(caller) == (7, 7, 0)


def test_an_empty_bucket_is_asked_no_more_often_than_if_it_were_enforced() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    caller.refuse(caller.fetch(caller.join(1, NO_WAIT)), retry_after=0.5)
    caller.reservoir.to_wake()
    assert caller.reservoir.tokens.denied_until == -math.inf, "no call is refused without a look"
    assert not caller.reservoir.forecast.denies(1, 0.1)
    for now in (0.1, 0.2, 0.4):
        assert isinstance(caller.step(caller.join(1, NO_WAIT), now), Admit)
    assert figures(caller.reservoir).calls == 1
    assert told(caller) == (4, 4, 0)
    assert isinstance(caller.step(caller.join(1, NO_WAIT), 0.6), Fetch)


def test_who_waits_when_shadow_mode_begins_is_admitted() -> None:
    caller = Ruled()
    line = [caller.join(1), caller.join(50)]
    caller.refuse(caller.fetch(line[0]))
    in_shadow(caller, 0.1)
    assert [isinstance(each.verdict, Admit) for each in line] == [True, True]
    assert told(caller) == (51, 51, 0)


def test_who_waits_behind_them_and_is_served_when_shadow_mode_begins_is_counted_once() -> None:
    caller = Ruled()
    line = [caller.join(3), caller.join(1)]
    caller.grant(caller.fetch(line[0]), tokens=1)
    in_shadow(caller, 0.1)
    assert [isinstance(each.verdict, Admit) and each.verdict.is_shadow for each in line] == [True, False]
    assert told(caller) == (4, 3, 0)


def test_a_store_that_is_away_refuses_nobody() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    waiter = caller.join(3)
    caller.reservoir.failed(caller.fetch(waiter), DEAD, 0.1)
    assert isinstance(waiter.verdict, Admit)
    assert told(caller) == (3, 3, 0)


def test_a_caller_that_leaves_uncounts_what_it_did_not_use() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    waiter = Waiter(7, NO_WAIT, Waking(), tentative=True)
    caller.reservoir.admission.join(waiter)
    caller.refuse(caller.fetch(waiter))
    assert told(caller) == (7, 7, 0)
    caller.reservoir.leave(waiter, 0.1)
    assert told(caller) == (0, 0, 0)


def test_a_refund_of_what_the_bucket_never_gave_does_not_reach_it() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    caller.refuse(caller.fetch(caller.join(7, NO_WAIT)))
    assert caller.refund(7, 0.1) is None


def test_what_was_counted_stays_when_a_trial_ends() -> None:
    caller = Ruled(rules=Rules(Override("*", Quota(1.0, 10), mode="shadow")))
    caller.grant(caller.fetch(caller.join(50)), tokens=60)
    caller.reservoir.tokens.take(10)
    caller.learn(revision=8)
    assert told(caller) == (60, 50, 0)
    assert caller.reservoir.state.trial is None


@pytest.mark.parametrize(
    ("quota", "instances", "counts", "refused"),
    [
        (Quota(10.0, 10), 1, [(0.0, 10), (0.0, 1), (1.0, 10), (3.0, 30)], [0, 1, 0, 10]),
        (Quota(10.0, 10), 2, [(0.0, 10), (1.0, 5)], [5, 0]),
        (Quota(10.0, 10), 1, [(0.0, 0), (1.0, 25)], [0, 5]),  # the burst, and what flows in meanwhile
        (Quota(10.0, 10, [Quota(1.0, 12)]), 1, [(0.0, 10), (1.0, 10)], [0, 7]),
        (Quota(0.0), 1, [(0.0, 3)], [3]),
        (Quota(0.5, 1), 3, [(0.0, 1), (0.0, 1), (0.0, 1)], [0, 1, 1]),  # parts of a token are carried on
        (Quota(0.5, 1), 3, [(0.0, 1), (0.0, -1)], [0, 0]),
        (Quota(10.0, 10), 1, [(5.0, 60), (4.0, 10)], [0, 10]),  # a clock that steps back refills nothing
        (Quota(10.0, 10), 1, [(5.0, 60), (4.0, 0), (6.0, 10)], [0, 0, 0]),
        (Quota(10.0, 10), 1, [(0.0, 13), (0.0, -3), (0.0, 1)], [3, -3, 1]),  # what is taken back was not admitted
    ],
)
def test_a_trial_counts_as_a_bucket_of_its_share(
    quota: Quota, instances: int, counts: list[tuple[float, int]], refused: list[int]
) -> None:
    trial = Trial(quota, 0.0)
    assert [trial.count(spent, instances, now) for now, spent in counts] == refused


def test_a_key_with_a_trial_stays_until_its_share_is_full() -> None:
    trial = Trial(Quota(1.0, 10), 0.0)
    assert trial.full_at(2) == 0.0
    trial.count(3, 2, 1.0)
    assert trial.full_at(2) == pytest.approx(1.0 + 2.5 / 0.5), "what was spent is taken for spread over that second"
    trial.count(0, 2, 60.0)
    assert trial.full_at(2) == 60.0
    assert trial.full_at(3) == 60.0, "of more instances each one's share is smaller"


def test_who_is_admitted_in_shadow_mode_spends_nothing_of_a_lease_and_has_nothing_to_confirm() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    served, passed = (Waiter(cost, NO_WAIT, Waking(), tentative=True, prompt=True) for cost in (5, 7))
    for each in served, passed:
        caller.reservoir.admission.join(each)
    caller.grant(caller.fetch(served), tokens=5, retry_after=0.5)
    caller.reservoir.admission.confirm(passed)
    lease = caller.reservoir.state.lease
    assert (served.verdict, passed.verdict) == (Admit(1.0), Admit(math.inf))
    assert (lease.pledged, lease.prompt) == (5, 5)


def test_what_is_admitted_in_shadow_mode_does_not_count_as_use_of_the_lease() -> None:
    caller = Entry(KeyRule(HUNDRED, "shadow"))
    caller.refuse(caller.fetch(caller.join(7, NO_WAIT)))
    caller.reservoir.state.count(0.1)
    assert caller.reservoir.state.is_untouched
