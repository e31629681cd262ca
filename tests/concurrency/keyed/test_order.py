"""In which order a caller acquires several keys, and where it waits, as a table."""

from batchlimit.concurrency.keyed.permits import AcquireOrder


def test_a_caller_waits_with_empty_hands_at_first_and_in_the_common_order_in_the_end() -> None:
    turns = AcquireOrder(["user", "repo", "all"])
    table = [
        ("all", ("user", "repo", "all"), ["user"]),
        ("user", ("all", "user", "repo"), ["all"]),
        ("repo", ("user", "repo", "all"), ["user"]),
        ("", ("user", "repo", "all"), ["user", "repo", "all"]),
    ]
    for turned_away_at, order, waits in table:
        assert turns.this_round() == order
        assert [key for key in order if turns.may_wait(key)] == waits
        turns.turned_away(turned_away_at)
