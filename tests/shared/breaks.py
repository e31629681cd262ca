"""Rules of shared permits, each broken on purpose: to see that the simulation would notice."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

from batchlimit.bucket.slot_messages import SlotAsk, SlotPush, SlotReply
from batchlimit.bucket.slot_table import Borrower, SlotTable
from batchlimit.shared import held_slots
from batchlimit.shared.held_slots import Place
from batchlimit.shared.line import SlotWaiter
from batchlimit.shared.local_slots import LocalSlots
from tests.shared.simulated import play


def _leases_count_from_the_answer() -> AbstractContextManager[Any]:
    answer = LocalSlots.answer

    def broken(self: LocalSlots, ask: SlotAsk, reply: SlotReply, sent: int, now: int) -> list[SlotWaiter]:
        return answer(self, ask, reply, now, now)

    return patch.object(LocalSlots, "answer", broken)


def _the_whole_lease_is_used() -> AbstractContextManager[Any]:
    return patch.object(held_slots, "USED", 1.0)


def _a_lost_lease_keeps_its_name() -> AbstractContextManager[Any]:
    expire = LocalSlots.expire

    def broken(self: LocalSlots, now: int) -> list[Place]:
        name = self.held.name
        lost = expire(self, now)
        self.held.name = name
        return lost

    return patch.object(LocalSlots, "expire", broken)


def _returns_are_differences() -> AbstractContextManager[Any]:
    seen = SlotTable._seen

    def broken(self: SlotTable, ask: SlotAsk) -> tuple[Borrower, bool]:
        me = self._by_name.get(ask.instance)
        if me is not None and ask.returned:
            ask = ask._replace(returned=me.granted - me.held + 1)
        return seen(self, ask)

    return patch.object(SlotTable, "_seen", broken)


def _pushes_are_differences() -> AbstractContextManager[Any]:
    hear = LocalSlots.hear

    def broken(self: LocalSlots, push: SlotPush, now: int) -> list[SlotWaiter]:
        return hear(self, push._replace(granted=self.held._granted + 1), now)

    return patch.object(LocalSlots, "hear", broken)


def _the_store_is_in_a_hurry() -> AbstractContextManager[Any]:
    lend = SlotTable.lend

    def broken(self: SlotTable, ask: SlotAsk, now: int) -> tuple[SlotReply, list[SlotPush]]:
        return lend(self, ask._replace(lease=round(ask.lease * 0.8)), now)

    return patch.object(SlotTable, "lend", broken)


def _tokens_stand_still() -> AbstractContextManager[Any]:
    return patch.object(SlotTable, "_renew_token", lambda self: None)


BREAKS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "leases count from the answer": _leases_count_from_the_answer,
    "the whole lease is used": _the_whole_lease_is_used,
    "a lost lease keeps its name": _a_lost_lease_keeps_its_name,
    "returns are differences": _returns_are_differences,
    "pushes are differences": _pushes_are_differences,
    "the store is in a hurry": _the_store_is_in_a_hurry,
    "tokens stand still": _tokens_stand_still,
}


def played(asked: tuple[range, str | None]) -> str:
    """Play stories, perhaps with a broken rule; return what went wrong in the first one in which something did."""
    seeds, broken = asked
    with BREAKS[broken]() if broken else nullcontext():
        for seed in seeds:
            try:
                play(seed)
            except AssertionError as error:
                return str(error)
    return ""
