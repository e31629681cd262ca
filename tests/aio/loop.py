"""An event loop in whose time nothing is waited for: when nothing can happen now, what comes next happens at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")


class NobodyWakes(AssertionError):
    """Every task waits, and nothing is planned that could wake one: a wake-up was lost."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 1000 s, and counts its turns. A wait that would never end fails at once."""

    def __init__(self) -> None:
        self.now, self.turns = 1000.0, 0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self.now

    def leap(self, seconds: float) -> None:
        """Let time pass in which nobody runs: the process was stopped."""
        self.now += seconds

    def pass_until_next(self) -> None:
        planned = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not planned:
            raise NobodyWakes("all tasks wait, for nothing")
        self.now = max(self.now, min(planned))


class _Impatient(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.turns += 1
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._loop.pass_until_next()
        return ready


def run(main: Callable[[], Coroutine[Any, Any, T]], *, debug: bool | None = None) -> T:
    """Run it to its end in virtual time; tasks that it leaves behind are cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop, debug=debug) as runner:
        return runner.run(main())


def virtual_loop() -> VirtualLoop:
    """The loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


P = ParamSpec("P")
Test = Callable[P, Coroutine[Any, Any, None]]


def virtual_time(test: Test[P]) -> Callable[P, None]:
    """Run a test in virtual time."""

    @wraps(test)
    def tested(*args: P.args, **options: P.kwargs) -> None:
        run(lambda: test(*args, **options))

    return tested


def on_a_loop(test: Test[P]) -> Callable[P, None]:
    """Run a test on an ordinary event loop."""

    @wraps(test)
    def tested(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(test(*args, **options))

    return tested
