from batchlimit.concurrency.laws import Fixed, Settable
from tests.concurrency.laws.world import drop, limits, sample


def test_no_sample_changes_a_fixed_limit() -> None:
    law = Fixed(7)
    assert limits(law, [sample(), drop(), sample(0, 0)]) == [7, 7, 7]
    assert law.limit == 7
    assert repr(law) == "Fixed(7)"


def test_a_settable_limit_is_what_was_set_last() -> None:
    law = Settable(7)
    law.set_limit(3)
    assert limits(law, [sample(), drop()]) == [3, 3]
    assert repr(law) == "Settable(3)"
