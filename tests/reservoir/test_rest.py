"""How long a key with nothing in it is left alone: until then nobody has to look when something is due."""

import math
from collections.abc import Callable

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.reservoir.waiter import Waiter
from tests.reservoir.entry import Entry
from tests.reservoir.world import Waking


def empty(idle_after: float = 10.0) -> Entry:
    """It spent the one token that it was granted, at 0.0."""
    entry = Entry(idle_after=idle_after)
    entry.grant(entry.fetch(entry.join(1)), 0.0, 1)
    assert entry.held == 0
    return entry


@pytest.mark.parametrize(("idle_after", "until"), [(10.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_an_empty_key_is_left_alone_for_a_second_after_its_use_or_until_it_is_idle(
    idle_after: float, until: float
) -> None:
    reservoir = empty(idle_after).reservoir
    assert reservoir.at_rest_until == until
    assert reservoir.lifecycle.due() >= until


def test_each_use_puts_that_off() -> None:
    entry = empty()
    entry.grant(entry.fetch(entry.join(1), 0.9), 0.9, 1)
    assert entry.reservoir.at_rest_until == 1.9


def is_waited_for(entry: Entry) -> None:
    entry.join(1)


def has_tokens(entry: Entry) -> None:
    entry.grant(entry.fetch(entry.join(1)), 0.0, 5)


def owes_a_refund(entry: Entry) -> None:
    """Its lease is over, and the store was not even asked."""
    back = entry.reservoir.corrections.refund(Waiter(1, NO_WAIT, Waking()), 2.0)
    assert back is not None
    entry.reservoir.gave_back(2.0, back)


def wants_a_refill(entry: Entry) -> None:
    entry.reservoir.prefetch.want_refill()


@pytest.mark.parametrize("begin", [is_waited_for, has_tokens, owes_a_refund, wants_a_refill])
def test_a_key_with_anything_to_do_is_not_left_alone(begin: Callable[[Entry], None]) -> None:
    entry = empty()
    begin(entry)
    assert entry.reservoir.at_rest_until == -math.inf
    assert entry.reservoir.lifecycle.due() < math.inf or entry.reservoir.state.queue
