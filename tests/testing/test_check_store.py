"""check_store says which rules a store breaks, for stores of both kinds."""

import asyncio
from typing import Any

import pytest

from batchlimit import Quota
from batchlimit.stores import Ask, GiveBack, Grant, MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from batchlimit.testing import check_store, store_rules


class Generous(MemoryStore):
    """Lends one token more than there are."""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        grant = super().take(key, quota, ask)
        return grant._replace(granted=grant.granted + 1) if ask.want else grant


class Forgetful(MemoryStore):
    """Credits what comes twice, twice."""

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return super().give_back(key, quota, back._replace(seq=back.seq + 10**6 + len(self._buckets)))


def broken_by(make: type[MemoryStore]) -> set[str]:
    with pytest.raises(ExceptionGroup, match="breaks") as told:
        check_store(make, seeds=1)
    return {note for error in told.value.exceptions for note in error.__notes__}


def test_a_store_in_memory_keeps_all_rules_for_threads_and_tasks() -> None:
    check_store(MemoryStore)
    check_store(lambda: AsyncMemoryStore(MemoryStore()))


class InTasks(AsyncMemoryStore):
    """Has a task do what it is asked, which its methods begin: they are no coroutine functions."""

    def take(self, *args: Any) -> Any:
        return asyncio.get_running_loop().create_task(super().take(*args))


def test_a_store_that_begins_tasks_is_asked_on_the_loop_of_their_answers() -> None:
    check_store(lambda: InTasks(MemoryStore()), seeds=1)


def test_a_store_that_mints_tokens_breaks_the_promise() -> None:
    broken = broken_by(Generous)
    assert "the rule: what is granted[no more is lent than is wanted]" in broken
    assert any("honest instances spend at most the burst" in note for note in broken)


def test_a_store_that_forgets_numbers_is_found_out() -> None:
    assert broken_by(Forgetful)


def test_each_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in store_rules()]
    assert len(set(names)) == len(names) > 60
