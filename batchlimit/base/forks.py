"""What begins anew in a forked child, also where Python was not told of the fork."""

import logging  # noqa: F401  before ours: a child has its locks anew when something of ours logs
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Forkable(Protocol):
    """Something that begins anew in a forked child."""

    def after_fork(self) -> None:
        """Begin anew: the parent's threads, sockets and tokens are not ours. Only called in the child."""


beginnings: list[Callable[[], object]] = []
"""What a forked child does, in this order."""
process = os.getpid()
"""The process that all of this belongs to. One of which Python was not told, as of uWSGI, has to `begin_anew`."""
_beginning = threading.RLock()  # a signal handler may call a limiter meanwhile


def begin_anew() -> None:
    """Do what a forked child does, once; other threads wait for it."""
    global process  # noqa: PLW0603
    with _beginning:
        if os.getpid() != process:
            failures = _failures(beginnings)
            process = os.getpid()  # an interrupt comes before: then the next call does all of it
            if failures:
                raise failures[0]


def _failures(calls: Iterable[Callable[[], object]]) -> list[Exception]:
    """Make all of these calls, and return what some of them raised: a store of the user's own may."""
    failures = list[Exception]()
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001  the others are no less forked
            failures.append(error)
    return failures


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_anew)


F = TypeVar("F", bound=Forkable)


class Forkables(Generic[F]):
    """All objects of one kind that live: a fork concerns each of them, and tells nobody else. It keeps none alive.

    Attributes:
        adopters: each is called with every one that is made; empty outside of tests.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[F] = weakref.WeakSet()
        self.adopters: list[Callable[[F], None]] = []
        beginnings.append(self._after_fork)

    def __iter__(self) -> Iterator[F]:
        return iter(list(self._all))

    def add(self, thing: F) -> None:
        """Tell it of each fork, and the adopters of it."""
        self._all.add(thing)
        for adopt in self.adopters:
            adopt(thing)

    def _after_fork(self) -> None:
        if failures := _failures([each.after_fork for each in self]):
            raise failures[0]
