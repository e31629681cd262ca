"""What looking costs is told of every look, and nothing is left on the server."""

import pytest

from benchmarks import looks
from tests.nodes import node
from tests.servers import valkey_binary


def test_each_look_is_told_of_and_leaves_nothing() -> None:
    with node(valkey_binary()) as one:
        found = {each.name: each for each in looks.figures(one.url, 3_000, 0.1)}
        assert one.ask("DBSIZE") == 0
    assert found["top: commands of a look"].value > 50
    assert 0 < found["top: buckets of a look"].value < 3_000, "one step, whatever the budget is"
    assert found["set --dry-run of all keys"].note.endswith(" commands")
    assert int(found["get: a look"].note.split()[0]) < 10, "however many buckets there are"


def test_a_server_that_is_in_use_is_left_alone() -> None:
    with node(valkey_binary()) as one:
        one.ask("SET", "somebody", "else")
        with pytest.raises(ValueError, match="not empty"):
            list(looks.figures(one.url, 10, 0.1))
        assert one.ask("DBSIZE") == 1
