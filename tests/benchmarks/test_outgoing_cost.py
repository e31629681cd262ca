"""What a transport adds is measured in threads and in tasks, beside a transport that answers at once."""

from benchmarks.outgoing_cost import added


def test_each_kind_of_transport_is_measured_and_the_plain_ones_have_a_target() -> None:
    found = list(added("memory://", rounds=2))
    assert len({each.name for each in found}) == 6
    assert [each.name for each in found if each.at_most is not None] == [
        "added to a request, threads: a transport",
        "added to a request, tasks: a transport",
    ]
