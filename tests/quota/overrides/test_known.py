"""When an instance looks at the overrides, and what it goes by until it has."""

import pytest

from batchlimit.quota.overrides.known import REFRESH, OverridesCache, Published
from batchlimit.quota.overrides.override import KeyRule, NotUnderstood
from batchlimit.quota.quota import Quota

CODE = Quota(1000.0)


class Limiter:
    """The clock of one, and how often it was to look."""

    def __init__(self) -> None:
        self.now = 50.0
        self.looks = 0
        self.known = OverridesCache(lambda: self.now, self._look)

    def _look(self) -> None:
        self.looks += 1

    def learn(self, revision: int, rule: str | None = None, now: float = 1000.0) -> None:
        fields = {"revision": str(revision), "form": "1"} | ({} if rule is None else {"rule:ann": rule})
        self.known.learn(Published(revision, now, fields), self.now)

    @property
    def rate(self) -> float:
        return self.known.in_force.rule("ann", KeyRule(CODE)).quota.rate


FIVE = '{"quota": "5/s"}'


def test_another_revision_is_read_once_and_then_heard_without_a_look() -> None:
    limiter = Limiter()
    for told, looks in ((0, 0), (0, 0), (7, 1), (7, 1), (7, 1)):
        limiter.known.hear(told, limiter.now)
        assert (limiter.looks, limiter.rate) == (looks, 1000.0)
    limiter.learn(7, FIVE)
    limiter.known.hear(7, limiter.now)
    limiter.now += 2 * REFRESH
    limiter.known.hear(7, limiter.now)
    assert (limiter.looks, limiter.rate, limiter.known.revision) == (1, 5.0, 7)


def test_an_earlier_revision_is_read_as_well() -> None:
    """After a failover the store may have lost the last change."""
    limiter = Limiter()
    limiter.learn(8, FIVE)
    limiter.known.hear(7, limiter.now)
    limiter.learn(7, '{"quota": "6/s"}')
    assert (limiter.looks, limiter.rate) == (1, 6.0)


def test_a_revision_that_was_told_and_not_found_is_looked_for_once_a_second() -> None:
    limiter = Limiter()
    for told in (9, 9, -1):
        limiter.known.hear(told, limiter.now)
        limiter.learn(8, FIVE)
    assert limiter.looks == 1
    limiter.now += REFRESH
    limiter.known.hear(9, limiter.now)
    assert limiter.looks == 2


def test_where_no_revision_is_told_an_instance_looks_once_a_second_while_it_asks() -> None:
    limiter = Limiter()
    for step in range(16):
        limiter.now = 50.0 + step / 4
        before = limiter.looks
        limiter.known.hear(-1, limiter.now)
        if limiter.looks > before:
            limiter.known.learn(Published(0, 0.0, None), limiter.now)
    assert limiter.looks == 4


def test_a_look_that_never_ends_does_not_keep_others_from_looking() -> None:
    """The thread that was to look may have been interrupted."""
    limiter = Limiter()
    limiter.known.hear(7, limiter.now)
    limiter.now += 9.9
    limiter.known.hear(7, limiter.now)
    assert limiter.looks == 1
    limiter.now += 0.1
    limiter.known.hear(7, limiter.now)
    assert limiter.looks == 2


def test_who_could_not_read_looks_again_a_second_later_and_a_store_that_is_away_is_no_news() -> None:
    limiter = Limiter()
    limiter.known.hear(9, limiter.now)
    assert not limiter.known.fail(TimeoutError())
    for seconds, looks in (0.9, 1), (0.1, 2):
        limiter.now += seconds
        limiter.known.hear(9, limiter.now)
        assert limiter.looks == looks


def test_the_first_fault_is_news() -> None:
    limiter = Limiter()
    assert [limiter.known.fail(NotUnderstood("it is damaged")) for _ in range(2)] == [True, False]


def test_a_child_looks_for_itself() -> None:
    limiter = Limiter()
    limiter.known.hear(7, limiter.now)
    limiter.known.after_fork()
    limiter.known.hear(7, limiter.now)
    assert limiter.looks == 2


def test_a_store_that_loses_overrides_of_which_none_is_left_is_in_no_trouble() -> None:
    limiter = Limiter()
    limiter.learn(7)
    limiter.known.hear(0, 10.0)
    limiter.known.learn(Published(0, 1000.0, {}), limiter.now)
    limiter.known.hear(0, 20.0)
    assert (limiter.looks, limiter.known.revision) == (1, 7)


@pytest.mark.parametrize("fields", [{}, {"form": "2", "revision": "9"}, {"form": "1", "revision": "9", "rule:a": ""}])
def test_damage_leaves_the_overrides_that_were_known_in_force_and_is_news_once(fields: dict[str, str]) -> None:
    limiter = Limiter()
    limiter.learn(7, FIVE)
    news = []
    for _ in range(3):
        with pytest.raises(NotUnderstood) as raised:
            limiter.known.learn(Published(9, 1000.0, fields), limiter.now)
        news.append(limiter.known.fail(raised.value))
    assert (news, limiter.known.failures, limiter.rate) == ([True, False, False], 1, 5.0)
    told = NotUnderstood(limiter.known._problem)
    limiter.learn(10, FIVE)
    assert limiter.known.fail(told), "what was mended is news when it is damaged again"


def test_after_damage_the_revision_that_was_known_is_read_again() -> None:
    limiter = Limiter()
    limiter.learn(7, FIVE)
    with pytest.raises(NotUnderstood):
        limiter.known.learn(Published(9, 1000.0, {"revision": "9"}), limiter.now)
    limiter.known.hear(7, limiter.now)
    assert (limiter.looks, limiter.rate) == (1, 5.0)


def test_an_override_ends_by_the_servers_clock() -> None:
    limiter = Limiter()
    limiter.learn(7, '{"quota": "5/s", "until": 1003.0}', now=1000.0)
    edition = limiter.known.in_force.edition
    assert limiter.known.next_end == 53.0
    limiter.now = 52.9
    assert not limiter.known.expire()
    assert limiter.rate == 5.0
    limiter.now = 53.0
    assert limiter.known.expire()
    assert (limiter.rate, limiter.known.in_force.edition) == (1000.0, edition + 1)
    assert not limiter.known.expire()


def test_an_override_ends_no_later_than_the_server_says_however_long_the_answer_was_under_way() -> None:
    limiter = Limiter()
    sent, limiter.now = limiter.now, limiter.now + 2.0
    fields = {"revision": "7", "form": "1", "rule:ann": '{"quota": "5/s", "until": 1003.0}'}
    limiter.known.learn(Published(7, 1000.0, fields), sent)
    assert limiter.known.next_end == sent + 3.0


@pytest.mark.parametrize(
    ("step", "ends_in"),
    [(0.0, 50.0), (30.0, 20.0), (-30.0, 80.0), (60.0, 0.0)],
    ids=["no step", "forward", "back", "over the end"],
)
def test_a_step_of_the_servers_clock_moves_an_end_when_the_overrides_are_read_next(step: float, ends_in: float) -> None:
    limiter, rule = Limiter(), '{"quota": "5/s", "until": 1060.0}'
    limiter.learn(7, rule, now=1000.0)
    limiter.now += 10.0
    assert (limiter.known.expire(), limiter.known.next_end - limiter.now) == (False, 50.0), "until then it stays"
    limiter.learn(8, rule, now=1010.0 + step)
    if ends_in:
        assert limiter.known.next_end - limiter.now == ends_in
        limiter.now += ends_in - 0.5
        assert (limiter.known.expire(), limiter.rate) == (False, 5.0)
        limiter.now += 0.5
        assert limiter.known.expire()
    assert limiter.rate == 1000.0


def test_a_busy_instance_has_itself_told_the_revision_twice_a_second() -> None:
    limiter = Limiter()
    told = 0
    for step in range(64):
        limiter.now = 50.0 + step / 16
        if limiter.now >= limiter.known.looks_at:
            told += 1
            limiter.known.hear(0, limiter.now)
    assert told == 8


def test_a_look_that_finds_the_same_revision_lets_overrides_end() -> None:
    """In a forked child no timer was set for it."""
    limiter = Limiter()
    limiter.learn(7, '{"quota": "0/s", "until": 1003.0}', now=1000.0)
    assert limiter.known.in_force.held_until("ann", KeyRule(CODE)) == 53.0, "by the clock of the instance"
    limiter.now = 53.0
    limiter.known.learn(Published(7, 1003.0, None), limiter.now)
    assert limiter.rate == 1000.0
