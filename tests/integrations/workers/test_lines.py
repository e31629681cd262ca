"""When refused tasks come back, and who lines up behind them."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.base.decision import Decision
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.integrations.task_limit import AsyncTaskLimit, Lines, Run, TaskLimit, Turn
from batchlimit.stores import MemoryStore
from batchlimit.testing import AsyncFaultStore, FaultStore
from tests.awaiting import awaited
from tests.sync.stage import Clock

NO = Decision(False, 10, 0, 2.0, 5.0, "store", Quota(10.0, 10))


@pytest.fixture
def lines(clock: Clock) -> Lines:
    return Lines(clock)


def test_a_refused_task_asks_for_a_turn_when_its_token_is_there(lines: Lines) -> None:
    turn = lines.refused("key", 1, NO, 0)
    assert isinstance(turn, Turn)
    assert turn.wait == 2.0
    assert turn.spacing == pytest.approx(0.097)
    assert lines.refused("key", 5, NO, 0) == Turn(2.0, pytest.approx(0.485))  # type: ignore[arg-type]


def test_a_new_task_lines_up_while_others_are_due_before_it(lines: Lines, clock: Clock) -> None:
    assert lines.behind("key", 1) is None, "there is no line"
    lines.refused("key", 1, NO, 0)
    assert lines.told("key", 4.0, 600.0) == 4.0
    assert lines.behind("key", 1) is None, "nobody is due yet: it asks, for a pause may have been lifted"
    clock.now += 2.0
    assert lines.behind("key", 2) == Turn(0.0, pytest.approx(0.194))  # type: ignore[arg-type]
    clock.now += 2.0
    assert lines.behind("key", 1) is None, "all were due"


def test_where_tokens_lie_unused_a_new_task_asks_until_one_is_refused(lines: Lines, clock: Clock) -> None:
    lines.refused("key", 1, NO, 0)
    lines.told("key", 60.0, 600.0)
    clock.now += 2.0
    lines.admitted("key", 5, 10)
    assert lines.behind("key", 1) is not None, "half is not much"
    lines.admitted("key", 6, 10)
    assert lines.behind("key", 1) is None
    lines.refused("key", 1, NO, 0)
    clock.now += 2.0
    assert lines.behind("key", 1) is not None


def test_one_task_whose_turn_came_too_early_waits_for_the_next_token_and_others_line_up(lines: Lines) -> None:
    early = replace(NO, retry_after=0.05)
    assert lines.refused("key", 1, early, 1) == 0.05
    assert isinstance(lines.refused("key", 1, early, 1), Turn)
    assert isinstance(lines.refused("other", 1, NO, 1), Turn), "2 s are more than a token's time"


def test_a_task_whose_turn_is_too_late_comes_back_meanwhile_and_not_with_all_others(lines: Lines) -> None:
    assert lines.told("key", 0.0, 600.0) == 0.001, "none is sent away for no time"
    told = [lines.told("key", 700.0, 600.0) for _ in range(50)]
    assert all(300.0 <= each <= 600.0 for each in told)
    assert len(set(told)) == 50
    assert lines.behind("key", 1) is None


def test_a_task_that_never_fits_asks_at_once_and_takes_no_turn(lines: Lines, clock: Clock) -> None:
    lines.refused("key", 1, NO, 0)
    lines.told("key", 4.0, 600.0)
    clock.now += 2.0
    assert lines.behind("key", 10) is not None
    assert lines.behind("key", 11) is None, "it is told that it never fits; others would wait for its turn"


def test_a_quota_that_refills_nothing_has_turns_of_a_second(lines: Lines) -> None:
    never = replace(NO, retry_after=math.inf, quota=Quota.parse("0/s"))
    assert lines.refused("key", 1, never, 0) == Turn(math.inf, 1.0)


def test_lines_that_are_over_are_forgotten_beyond_ten_thousand(lines: Lines, clock: Clock) -> None:
    for number in range(10_000):
        lines.refused(str(number), 1, NO, 0)
    lines.told("1", 60.0, 600.0)
    clock.now += 10.0
    lines.refused("one more", 1, NO, 0)
    assert repr(lines) == "<Lines of 2 keys>"


def mail(to: str, copies: int = 1) -> None:
    pass


NEW = Run("mail", mail, ("ann",), {}, 0)


APIS = [
    (RateLimiter, FaultStore, TaskLimit, lambda limit, run: limit.wait(run)),
    (AsyncRateLimiter, AsyncFaultStore, AsyncTaskLimit, lambda limit, run: awaited(limit.wait, run)),
]


@pytest.fixture(params=APIS, ids=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Any:
    return SimpleNamespace(**dict(zip(("limiter", "store", "limit", "wait"), request.param, strict=True)))


def test_refused_tasks_come_back_one_after_the_other(api: Any) -> None:
    limit = api.limit(api.limiter(MemoryStore(lambda: 0.0), "1/m"), "mail:{to}")
    waits = [api.wait(limit, NEW) for _ in range(4)]
    assert waits[0] == 0.0
    assert waits[1] > 50.0
    assert [later - sooner for sooner, later in pairwise(waits[1:])] == [pytest.approx(58.2)] * 2


def test_a_key_is_made_of_the_arguments_of_each_task(api: Any) -> None:
    limit = api.limit(api.limiter(MemoryStore(), "1/hour"), "{task}:{to}:{copies}")
    assert limit.charge(NEW) == ("mail:ann:1", 1)
    assert limit.charge(Run("{odd}", mail, ("bob",), {"copies": 3}, 0)) == ("{odd}:bob:3", 1)
    with pytest.raises(ValueError, match="names 'from', which is no parameter"):
        api.limit(api.limiter(MemoryStore(), "1/hour"), "mail:{from}").charge(NEW)


def test_a_function_says_key_and_cost(api: Any) -> None:
    limit = api.limit(api.limiter(MemoryStore(), "9/hour"), lambda to: to.upper(), cost=len)
    assert limit.charge(NEW) == ("ANN", 3)
    assert api.wait(limit, NEW) == 0.0


def test_while_the_store_is_away_tasks_come_back_within_5_seconds(api: Any) -> None:
    limit = api.limit(api.limiter(api.store(down=True), "1/hour"), "mail:{to}")
    assert 2.5 <= api.wait(limit, NEW) <= 5.0


def test_nothing_is_sent_away_for_longer_than_it_is_to_be(api: Any) -> None:
    limit = api.limit(api.limiter(MemoryStore(), "0/s"), longest=7.0)
    assert all(0.0 < api.wait(limit, NEW) <= 7.0 for _ in range(20))
    assert 0.0 < api.wait(limit, NEW._replace(times=3)) <= 7.0


def test_a_task_that_does_not_fit_a_lower_limit_holds_nobody_up() -> None:
    with RateLimiter(MemoryStore(), "0/s") as limiter:
        limit = TaskLimit(limiter, "mail:{to}", longest=7.0)
        assert 3.5 <= limit.wait(NEW) <= 7.0
        assert limiter.line_up("mail:ann", 1.0, 1.0) == pytest.approx(1.0), "it took no turn"


def test_what_cannot_work_is_told_at_the_start(api: Any) -> None:
    limiter = api.limiter(MemoryStore(), "1/hour")
    with pytest.raises(TypeError, match="need a limiter that is"):
        api.limit("redis://localhost")
    for wrong in ({"key": ""}, {"cost": -1}, {"longest": 0.0}):
        with pytest.raises(ValueError, match="must"):
            api.limit(limiter, **wrong)


def test_turns_are_given_one_after_the_other_or_refused(api: Any) -> None:
    def line_up(limiter: Any, *asked: Any, **options: Any) -> Any:
        return do(limiter.line_up, *asked, **options)

    do: Any = awaited if api.limiter is AsyncRateLimiter else lambda call, *asked, **options: call(*asked, **options)
    limiter = api.limiter(MemoryStore(lambda: 0.0), "1/hour")
    assert [line_up(limiter, "ann", 1.0, 0.5) for _ in range(3)] == [1.0, 1.5, 2.0]
    with pytest.raises(ValueError, match="empty"):
        line_up(limiter, "", 1.0, 1.0)
    for wait, spacing, longest in ((-1.0, 1.0, 600.0), (math.inf, 1.0, 600.0), (1.0, math.nan, 600.0), (1.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match=r"(more than|at least) 0 seconds, and finite"):
            line_up(limiter, "ann", wait, spacing, longest=longest)
    away = api.limiter(api.store(down=True), "1/hour")
    with pytest.raises(StoreUnavailable) as caught:
        line_up(away, "ann", 1.0, 1.0)
    assert caught.value.key == "ann"
    do(away.close)
    with pytest.raises(LimiterClosed):
        line_up(away, "ann", 1.0, 1.0)
