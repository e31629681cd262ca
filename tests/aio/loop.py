"""An event loop in whose time nothing is waited for: when nothing can happen now, what comes next happens at once."""

import asyncio
import inspect
import selectors
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class NobodyWakes(AssertionError):
    """Every task waits, and nothing is planned that could wake one: a wake-up was lost."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 1000 s, and counts its turns. A wait that would never end fails at once."""

    def __init__(self) -> None:
        self.now, self.turns = 1000.0, 0
        self.limiters: list[Any] = []  # which are closed at the end of a test
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


def run_test(item: pytest.Function, *, is_virtual: bool) -> bool | None:
    """Run a test that is a coroutine on a loop of its own; None: it is none."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    with asyncio.Runner(loop_factory=VirtualLoop if is_virtual else None) as runner:
        runner.run(item.obj(**arguments))
        runner.run(_end(getattr(runner.get_loop(), "limiters", ())))
    return True


async def _end(limiters: Iterable[Any]) -> None:
    """Close limiters. The tasks that a test has left behind end by that, or are cancelled."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for each in limiters:
        await each.close()
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
