"""Steps that threads and tasks go through alike: generators that yield what one calls and the other awaits."""

import inspect
from collections.abc import Awaitable, Generator
from types import CoroutineType
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Any, Any, T]


def run(steps: Steps[T]) -> T:
    """Go through steps in a thread: what they yield is the result."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Awaitable):
                if isinstance(step, CoroutineType):
                    step.close()
                step = steps.throw(TypeError("a function of a rule returned an awaitable, and a thread cannot await"))
            else:
                step = steps.send(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive(steps: Steps[T]) -> T:
    """Go through steps in a task: what they yield is awaited, if it can be."""
    try:
        step = next(steps)
        while True:
            try:
                is_awaitable = step.__class__ is CoroutineType or inspect.isawaitable(step)  # the latter takes 1 us
                value = await step if is_awaitable else step
            except BaseException as error:  # noqa: BLE001  the steps say what becomes of it
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
