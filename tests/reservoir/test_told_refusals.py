"""The bucket hears how many tokens an instance refused its callers: for people who look at a fleet."""

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.overrides.override import KeyRule
from tests.reservoir.entry import DEAD, HUNDRED, Entry


def refusing(entry: Entry, at: float = 0.0) -> None:
    """Have the bucket refuse a caller for half a second, and memory one more of cost 2."""
    entry.refuse(entry.fetch(entry.join(1, NO_WAIT), at), at)
    entry.reservoir.to_wake()
    entry.reservoir.admission.deny(2, at + 0.1)


def test_an_ask_tells_of_the_tokens_that_were_refused_since_the_last_one() -> None:
    entry = Entry()
    refusing(entry)
    fetch = entry.fetch(entry.join(1), 0.6)
    assert fetch.ask.refused == 3
    entry.grant(fetch, 0.6, tokens=1)
    assert entry.fetch(entry.join(1), 0.7).ask.refused == 0


def test_what_may_not_have_arrived_is_told_again() -> None:
    entry = Entry()
    refusing(entry)
    lost = entry.fetch(entry.join(1), 0.6)
    entry.reservoir.failed(lost, DEAD, 0.6)
    assert entry.fetch(entry.join(1), 1.0).ask.refused >= 3


def test_an_ask_tells_of_the_tokens_that_were_only_to_be_refused() -> None:
    entry = Entry(KeyRule(HUNDRED, "shadow"))
    entry.refuse(entry.fetch(passed := entry.join(4, NO_WAIT)), retry_after=0.5)
    fetch = entry.fetch(entry.join(1), 0.6)
    assert (fetch.ask.refused, fetch.ask.shadow_refused) == (0, 4)
    entry.grant(fetch, 0.6, tokens=1)
    fetch = entry.fetch(entry.join(1), 0.7)
    assert fetch.ask.shadow_refused == 0
    entry.grant(fetch, 0.7, tokens=1)
    entry.reservoir.leave(passed, 0.8)  # nobody untells it
    assert entry.fetch(entry.join(1), 0.9).ask.shadow_refused == 0
