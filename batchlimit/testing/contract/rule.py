"""Rules of a contract: functions of a store, each perhaps for several cases."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from batchlimit.stores.protocols import Store

F = TypeVar("F", bound=Callable[..., None])
MOST_SEEDS = 10
"""Seeds of a rule that tries random messages, at the most."""


class Rule(NamedTuple):
    """One rule; `check` raises AssertionError unless a store keeps it, which has to be new."""

    name: str
    check: Callable[[Store], None]


def cases(name: str, values: Iterable[object]) -> Callable[[F], F]:
    """Have a rule hold for each of these values of an argument."""

    def note(function: F) -> F:
        noted: Any = function
        noted.cases = [(name, list(values)), *getattr(function, "cases", [])]
        return function

    return note


def rules_of(module: ModuleType, seeds: int) -> Iterator[Rule]:
    """Yield the rules of a module, those of random messages for so many seeds."""
    for name, function in vars(module).items():
        if callable(function) and function.__module__ == module.__name__ and not name.startswith("_"):
            yield from _rules(name, function, seeds)


def _rules(name: str, function: Any, seeds: int) -> Iterator[Rule]:
    arguments = getattr(function, "cases", [])
    names = [argument for argument, _ in arguments]
    values = [each[:seeds] if argument == "seed" else each for argument, each in arguments]
    for case in product(*values):
        told = f"[{', '.join(map(str, case))}]" if case else ""
        yield Rule(f"{name}{told}", partial(function, **dict(zip(names, case, strict=True))))


def near(seen: float, wanted: float, rel: float = 1e-6) -> bool:
    """Whether two numbers differ by no more than so great a part of them."""
    return math.isclose(seen, wanted, rel_tol=rel, abs_tol=1e-12)
