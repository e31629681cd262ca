"""How a limiter reads the overrides in its store, whatever that raises."""

from typing import Any

import pytest

from batchlimit.base.steps import run
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.rule_reader import RuleReader
from batchlimit.quota.overrides.override import NotUnderstood


class Rules:
    """A store that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, known: int) -> Any:
        raise self.error


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
