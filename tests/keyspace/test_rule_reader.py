"""How a limiter reads the overrides in its store, whatever that raises."""

import math
from typing import Any

import pytest

from batchlimit import RateLimiter
from batchlimit.base.steps import run
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.base_registry import RuleReader
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.override import NotUnderstood
from batchlimit.stores import MemoryStore


class Rules:
    """A store that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, known: int) -> Any:
        raise self.error


def test_all_keys_go_by_the_rules_again_where_an_override_ends() -> None:
    now, reconsidered = [100.0], list[float]()
    reader = RuleReader(None, lambda: now[0], lambda steps: None, lambda: reconsidered.append(now[0]))
    fields = {"revision": "7", "form": "1", "rule:ann": '{"quota": "5/s", "until": 1010}'}
    reader.known.learn(Published(7, 1000.0, fields), now[0])
    assert reader.expire() == 110.0
    assert reconsidered == []
    now[0] = 110.0
    assert reader.expire() == math.inf
    assert reconsidered == [110.0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreUnavailable("away"), []),
        (NotUnderstood("torn"), ["the overrides in the store are not used, and those known before still are: torn"]),
        (ZeroDivisionError("of the user's own"), ["reading the overrides failed; those known before are used"]),
    ],
)
def test_overrides_that_cannot_be_read_are_no_error_of_the_limiter_which_looks_again_a_second_later(
    error: Exception, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    now, looks = [100.0], list[None]()
    reader = RuleReader(Rules(error), lambda: now[0], lambda steps: looks.append(run(steps)), lambda: None)
    for seconds, count in (0.0, 1), (0.9, 1), (0.2, 2):
        now[0] += seconds
        reader.known.hear(7, now[0])
        assert len(looks) == count
    assert list(dict.fromkeys(caplog.messages)) == told


def test_a_limiter_that_closes_its_store_amid_a_read_tells_of_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    class Closed(Rules):
        def read(self, known: int) -> Any:
            limiter.close()
            return super().read(known)

    store: Any = MemoryStore()
    store.rules = Closed(TypeError("argument must be an int, or have a fileno() method"))
    limiter = RateLimiter(store, "5/s")
    run(limiter._registry.rules.read())
    assert caplog.messages == []
