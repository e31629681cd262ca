"""Rules of shared permits, each broken on purpose: to see that the simulation would notice."""

from contextlib import nullcontext
from typing import Any

from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotTable
from batchlimit.shared import held_slots
from batchlimit.shared.held_slots import Place
from batchlimit.shared.local_slots import LocalSlots
from tests.shared.simulated import play
from tests.simulation.breaks import Break, instead, set_to


def _count_leases_from_the_answer(answer: Any, self: LocalSlots, ask: SlotAsk, reply: Any, sent: int, now: int) -> Any:
    return answer(self, ask, reply, now, now)


def _keep_the_name_of_a_lost_lease(expire: Any, self: LocalSlots, now: int) -> list[Place]:
    name = self.held.name
    lost: list[Place] = expire(self, now)
    self.held.name = name
    return lost


def _return_differences(seen: Any, self: SlotTable, ask: SlotAsk) -> Any:
    me = self._by_name.get(ask.instance)
    if me is not None and ask.returned:
        ask = ask._replace(returned=me.granted - me.held + 1)
    return seen(self, ask)


def _push_differences(hear: Any, self: LocalSlots, push: SlotPush, now: int) -> Any:
    return hear(self, push._replace(granted=self.held._granted + 1), now)


def _hurry(lend: Any, self: SlotTable, ask: SlotAsk, now: int) -> Any:
    return lend(self, ask._replace(lease=round(ask.lease * 0.8)), now)


BREAKS: dict[str, Break] = {
    "leases count from the answer": instead(LocalSlots, "answer", _count_leases_from_the_answer),
    "the whole lease is used": set_to(held_slots, "USED", 1.0),
    "a lost lease keeps its name": instead(LocalSlots, "expire", _keep_the_name_of_a_lost_lease),
    "returns are differences": instead(SlotTable, "_seen", _return_differences),
    "pushes are differences": instead(LocalSlots, "hear", _push_differences),
    "the store is in a hurry": instead(SlotTable, "lend", _hurry),
    "tokens stand still": set_to(SlotTable, "_renew_token", lambda self: None),
}


def played(seed: int, broken: str | None = None) -> tuple[int, str]:
    """Play a story, perhaps with a broken rule; return the seed, and what went wrong, or nothing."""
    with BREAKS[broken]() if broken else nullcontext():
        try:
            play(seed)
        except AssertionError as error:
            return seed, str(error)
    return seed, ""
