"""A spend tells until when its caller waits, by a server's clock of which answers alone tell."""

from types import SimpleNamespace

import pytest

from batchlimit.bucket.messages import Spend
from batchlimit.quota.quota import Quota
from batchlimit.stores.client import scripts
from batchlimit.stores.client.scripts import ServerClocks, SpendScript

WITHIN = 0.05
HOUR = 3600.0
QUICK = 0.001
"""How long (s) a call takes there, and its answer back."""


class Wire:
    """A server, whose clock is `ahead` (s) of the one here, and the way there and back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now, self.ahead, self._script = 1000.0, 1e9, SpendScript("p", "", ServerClocks())
        patch.setattr(scripts, "time", SimpleNamespace(monotonic=lambda: self._now))

    def is_charged(self, there: float = QUICK, back: float = QUICK) -> bool:
        """Whether the script charges a spend that takes so long on its way; its answer is read then."""
        groups, sent = [[Spend("k", Quota.parse("9/s"), 1)]], self._now
        _, _, (_, latest, *_) = self._script.call(groups, False, WITHIN, "")
        self._now += there
        clock = int((self._now + self.ahead) * 1e6)
        self._now += back
        self._script.read([-1, clock, 1, 0, 1, 8000], groups, "", sent)
        return not latest or clock < int(latest)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def test_a_server_that_stood_still_charges_nothing(wire: Wire) -> None:
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)
    assert wire.is_charged()


def test_a_call_that_came_there_late_tells_nothing_new(wire: Wire) -> None:
    assert wire.is_charged()
    assert wire.is_charged(there=WITHIN)
    assert not wire.is_charged(there=1.5 * WITHIN)


def test_a_busy_process_that_reads_its_answers_late_is_charged(wire: Wire) -> None:
    """Each of its spends was refused, and its key had to lease."""
    assert all(wire.is_charged(back=2 * WITHIN) for _ in range(3))
    assert not wire.is_charged(there=2 * WITHIN)


def test_a_server_that_stood_still_at_the_first_call_says_the_next_time_what_its_clock_is(wire: Wire) -> None:
    assert wire.is_charged(there=HOUR)
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)


def test_one_call_after_a_clock_was_set_knows_the_other_time(wire: Wire) -> None:
    """So it is where another server took over."""
    assert wire.is_charged()
    wire.ahead += HOUR
    assert not wire.is_charged()
    assert wire.is_charged()
    wire.ahead -= 2 * HOUR
    assert wire.is_charged()
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)
