"""How a call is settled: what of it is counted as what, and who decided."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.denial_cache import DenialCache
from batchlimit.reservoir.fallback import OpenBucket
from batchlimit.reservoir.waiter import NOBODY, Admit, Fetch, Refuse, Waiter, half_of
from tests.reservoir.entry import HUNDRED, Entry


@pytest.mark.parametrize(
    ("verdict", "asked", "source"),
    [
        (Admit(1.0), False, "local"),
        (Admit(1.0), True, "store"),
        (Refuse(0.5), False, "denied"),
        (Refuse(0.5), True, "store"),
        (Admit(1.0, is_shadow=True), True, "shadow"),
    ],
)
def test_a_result_says_who_decided(verdict: Admit | Refuse, asked: bool, source: str) -> None:
    result = AdmissionResult(verdict, waited=asked, asked=asked, forecast=Entry().reservoir.forecast)
    assert (result.source, result.decision(0.0).source) == (source, source)
    assert result.decision(0.0).retry_after == (verdict.retry_after if isinstance(verdict, Refuse) else 0.0)
    refusal = result.refusal("key", 0.0)
    assert (refusal.key, refusal.retry_after, refusal.decision) == (
        "key",
        result.decision(0.0).retry_after,
        result.decision(0.0),
    )


@pytest.mark.parametrize(("until", "deadline"), [(9.0, 3.0), (2.5, 2.5)])
def test_who_holds_tokens_and_wants_others_has_half_of_their_time_for_that(until: float, deadline: float) -> None:
    assert half_of(Admit(4.0), until, 2.0) == deadline


@pytest.mark.parametrize(
    ("verdict", "at", "is_good"),
    [(None, 0.0, False), (Refuse(0.5), 0.0, False), (Admit(1.0), 0.9, True), (Admit(1.0), 1.0, False)],
)
def test_who_was_admitted_may_go_ahead_until_the_end_of_its_tokens(
    verdict: Admit | Refuse | None, at: float, is_good: bool
) -> None:
    waiter = Waiter(1, math.inf, NOBODY)
    waiter.verdict = verdict
    assert waiter.is_good(at) is is_good


def test_a_hit_did_not_wait_and_asked_nobody() -> None:
    hit = AdmissionResult.hit(1.0, Entry().reservoir.forecast)
    assert (hit.admitted, hit.waited, hit.asked, hit.source) == (True, False, False, "local")


def test_what_memory_refuses_once_is_refused_to_others_without_the_lock() -> None:
    entry = Entry()
    entry.reservoir.state.denials = DenialCache.dry(0.5, 1, 0.0)
    assert entry.reservoir.admission.deny(3, 0.1)
    assert (entry.reservoir.tokens.denied_until, entry.counted) == (0.5, (0, 3))


def test_what_an_answer_refused_at_once_is_refused_by_the_store_and_who_waited_timed_out() -> None:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(2, NO_WAIT)))
    assert isinstance(entry.step(entry.join(3, NO_WAIT), 0.1), Refuse)
    assert isinstance(entry.step(entry.join(4, 0.2), 0.2), Refuse)
    state = entry.reservoir.state
    assert (entry.counted, state.refused_by_store, state.timed_out) == ((0, 9), 2, 4)


def test_who_came_after_an_ask_is_not_refused_by_its_answer() -> None:
    entry = Entry()
    fetch = entry.fetch(entry.join(50, NO_WAIT))
    late = entry.join(1, NO_WAIT)
    entry.refuse(fetch)
    assert late.verdict is None
    assert isinstance(entry.step(late), Fetch)


def test_what_is_pledged_is_never_less_than_nothing() -> None:
    """Where a caller is put back into its place, and that was interrupted, it is done again."""
    entry, waiter = Entry(), Waiter(5, NO_WAIT, NOBODY, tentative=True, prompt=True)
    entry.reservoir.admission.join(waiter)
    entry.grant(entry.fetch(waiter), tokens=5)
    lease = entry.reservoir.state.lease
    for _ in range(2):
        entry.reservoir.admission._confirm(waiter)
        assert (lease.pledged, lease.prompt) == (0, 0)


@pytest.mark.parametrize(("cost", "stays"), [(20, True), (21, False)])
def test_who_still_fits_a_smaller_quota_stays_in_line(cost: int, stays: bool) -> None:
    entry = Entry()
    waiter = entry.join(cost)
    entry.reservoir.admission.obey(Quota(10.0, 20))
    assert (waiter.verdict is None) is stays


def test_an_equal_quota_leaves_what_stands_in_for_the_bucket() -> None:
    entry = Entry(policy=FailurePolicy.local(instances=1))
    state = entry.reservoir.state
    state.fallback.bucket = before = OpenBucket(HUNDRED)
    entry.reservoir.admission.obey(Quota(100.0, 100))
    assert state.fallback.bucket is before


def test_a_debt_is_not_paid_by_what_expired() -> None:
    entry = Entry(tokens=5)
    entry.reservoir.lifecycle.debit(3, 1.5)
    assert entry.reservoir.state.overdraft.total == 3


def test_a_refund_of_nothing_changes_nothing_that_is_known() -> None:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(1, NO_WAIT)))
    assert entry.refund(0, 0.1) is None
    assert entry.reservoir.forecast.denies(1, 0.1)
