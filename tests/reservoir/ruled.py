"""A key whose instance knows the overrides that a test sets."""

from typing import Any

from batchlimit.quota.overrides.override import KeyRule, Override
from batchlimit.quota.overrides.overrides import NONE, InForce, Overrides
from batchlimit.quota.quota import Quota
from tests.reservoir.entry import HUNDRED, Entry

NOTHING = Quota(0.0)


class Rules:
    """What the instance knows."""

    def __init__(self, *overrides: Override) -> None:
        self.in_force = InForce.at(Overrides(7, overrides), 0.0) if overrides else NONE
        self.heard: list[int] = []
        self.looks_at = 0.0

    def hear(self, told: int, now: float) -> None:
        self.heard.append(told)


class Ruled(Entry):
    """An entry, and what its instance knows."""

    def __init__(
        self, quota: Quota | KeyRule = HUNDRED, tokens: int = 0, *, rules: Rules | None = None, **rest: Any
    ) -> None:
        self.rules = rules or Rules()
        super().__init__(quota, tokens, rules=self.rules, **rest)

    def learn(self, *overrides: Override, at: float = 0.0, revision: int = 7) -> None:
        """Its instance learns of these overrides, and that there are no others."""
        self.rules.in_force = InForce.at(Overrides(revision, overrides), at)
        self.reservoir.rule.reconsider(at)

    def obey(self, quota: Quota, revision: int = 7) -> None:
        """Its instance learns of an override by this quota."""
        self.learn(Override("key", quota), revision=revision)
