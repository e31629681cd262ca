"""Hundreds of stories of a fleet that shares a limit, and the proof that each rule's breaking would be noticed."""

from functools import partial

import pytest

from tests.depth import depth
from tests.seeds import command
from tests.shared.breaks import BREAKS, played
from tests.shared.simulated import play

_CHUNK = 50


@pytest.mark.parametrize("seeds", [range(n, n + _CHUNK) for n in range(0, depth(50, 20_000), _CHUNK)], ids=str)
def test_never_more_than_the_limit_is_held(seeds: range) -> None:
    assert sum(play(seed).served for seed in seeds) > _CHUNK


def test_a_seed_replays_exactly() -> None:
    first, second = play(7), play(7)
    assert (first.steps, first.served, first.time) == (second.steps, second.served, second.time)


# Where to look first for what few seeds notice.
_HINTS = {"leases count from the answer": 74}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    hint = _HINTS.get(name, 0)
    assert any(played(seed, name)[1] for seed in range(hint, hint + 2000))


def test_the_command_says_that_no_rule_was_broken_or_which_seed_breaks_one(capsys: pytest.CaptureFixture[str]) -> None:
    play_seeds = partial(command, "tests.shared", None, played, BREAKS)
    assert play_seeds(words=["--seeds", "20", "--jobs", "2"]) == 0
    assert "20 seeds, no rule broken" in capsys.readouterr().out
    assert play_seeds(words=["--seeds", "500", "--jobs", "1", "--break", "the store is in a hurry"]) == 1
    assert "seed " in capsys.readouterr().out
