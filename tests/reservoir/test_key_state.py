"""What the parts of a key's reservoir ask of its state, and what the state tells callers without the lock."""

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import NO_DENIALS
from tests.reservoir.entry import HUNDRED, Entry
from tests.reservoir.world import figures


def test_what_is_here_is_held_wherever_it_is() -> None:
    entry = Entry(tokens=20)
    assert entry.held == 20, "loose"
    entry.reservoir.tokens.take(1)
    assert entry.held == 19, "laid out"
    fetch = entry.fetch(entry.join(25), 0.1)
    assert (entry.held, entry.reservoir.tokens.available) == (19, 0), "reserved for who waits"
    entry.grant(fetch, 0.1, 6, starts_in=0.3)
    assert entry.held == 25, "granted for later"
    assert figures(entry.reservoir)[:2] == (2, 0)


def test_one_token_to_come_speaks_against_an_ask() -> None:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), tokens=1, starts_in=0.3)
    entry.reservoir.state.denials = NO_DENIALS  # the bucket was short as well, as far as that is known
    assert [entry.reservoir.state.is_short(at) for at in (0.1, 0.3)] == [True, True], "until it is taken in"
    entry.step(entry.join(1), 0.3)
    assert not entry.reservoir.state.is_short(0.3)


def test_a_bucket_begins_by_a_quota_that_admits_something() -> None:
    assert Entry(HUNDRED).reservoir.state.to_ask_with == HUNDRED
    assert Entry(Quota(0)).reservoir.state.to_ask_with is None
