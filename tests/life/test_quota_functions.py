"""A function of the key is asked once for each key: what it says later reaches no key, whatever became of it."""

import threading

import pytest

from batchlimit import Quota
from batchlimit.quota.lookup import FEWEST, Constant, quota_rule
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.life.test_dormant_keys import come_to_rest, soon
from tests.servers import Server
from tests.sync.stage import Clock, said, together

__all__ = ["soon"]
KEYS = [f"key-{n}" for n in range(40)]


class Plan:
    """What a function of the key looks up, and somebody changes."""

    def __init__(self) -> None:
        self.quota = Quota(1000.0, 100)
        self.asked: list[str] = []

    def __call__(self, key: str) -> Quota:
        self.asked.append(key)
        return self.quota


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("life", ["busy", "at rest", "evicted", "idle"])
def test_what_a_function_said_first_stays_for_each_key(api: Api, clock: Clock, life: str) -> None:
    """It was obeyed for 28 of 40 keys after a rest, and for none that was busy."""
    plan = Plan()
    most, idle_after = {"evicted": 10}.get(life, 1000), {"idle": 0.1}.get(life, 1000.0)
    with api(MemoryStore(clock), plan, clock=clock, max_keys=most, idle_after=idle_after) as limiter:
        assert [limiter.decide(key).limit for key in KEYS] == [100] * len(KEYS)
        plan.quota = Quota(1000.0, 7)
        if life in ("at rest", "idle"):
            clock.pass_by(5.0)
            come_to_rest(limiter)
        for _ in range(3):
            assert [limiter.decide(key).limit for key in KEYS] == [100] * len(KEYS)
            clock.pass_by(0.3)
        assert limiter.decide("a new one").limit == 7
    assert sorted(plan.asked) == sorted([*KEYS, "a new one"])


def test_each_limiter_asks_for_itself_and_the_one_that_was_made_last_decides(api: Api, clock: Clock) -> None:
    store, plan = MemoryStore(clock), Plan()
    with api(store, plan, clock=clock) as older:
        assert [older.decide(key).limit for key in KEYS] == [100] * len(KEYS)
        plan.quota = Quota(1000.0, 7)
        clock.pass_by(1.0)
        with api(store, plan, clock=clock) as younger:
            assert [younger.decide(key).limit for key in KEYS] == [7] * len(KEYS)
        clock.pass_by(1.0)
        assert [older.decide(key).limit for key in KEYS] == [7] * len(KEYS)
        plan.quota = Quota(1000.0, 50)
        clock.pass_by(1.0)
        assert [older.decide(key).limit for key in KEYS] == [7] * len(KEYS)


def test_threads_that_ask_at_once_hear_the_same() -> None:
    answers = iter(range(1, 1000))
    turn = threading.Barrier(8)

    def ask(_key: str) -> Quota:
        turn.wait(100.0)
        return Quota(float(next(answers)))

    rule = quota_rule(ask)
    assert len(set(together(8, lambda: rule("key")))) == 1


def test_a_function_that_failed_is_asked_again() -> None:
    said: list[str] = ["nonsense", "5/s", "6/s"]
    rule = quota_rule(lambda _key: said.pop(0))
    with pytest.raises(ValueError, match="nonsense"):
        rule("key")
    assert [rule("key"), rule("key")] == [Quota(5.0), Quota(5.0)]


def test_answers_for_keys_that_somebody_invents_are_forgotten_in_time() -> None:
    plan = Plan()
    rule = quota_rule(plan)
    for n in range(5 * FEWEST):
        rule(f"key-{n}")
    known = len(plan.asked)
    for n in range(4 * FEWEST, 5 * FEWEST):
        rule(f"key-{n}")
    assert len(plan.asked) == known
    assert isinstance(rule, Constant)
    assert len(rule._new) + len(rule._old) == 2 * FEWEST


def test_a_forked_child_has_the_answers_of_its_parent(valkey: Server, prefix: str) -> None:
    program = """
    plan = {"quota": "1000/s burst 100"}
    limiter = limiter_of(lambda key: plan["quota"])
    say(limiter.decide(KEY).limit)
    plan["quota"] = "1000/s burst 7"
    fork(lambda: limiter.decide(KEY).limit)
    say(limiter.decide(KEY).limit)
    """
    assert said(program, valkey.url, prefix) == ["100"] * 3
