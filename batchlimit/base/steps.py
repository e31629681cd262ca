"""Steps that threads and tasks go through alike: generators that yield what one calls and the other awaits."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Steps = Generator[Any, Any, T]


def run(steps: Steps[T]) -> T:
    """Go through steps in a thread: what they yield is the result. A handler that raises here ends them at once."""
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
    finally:
        steps.close()


def followed(steps: Callable[Concatenate[Any, P], Steps[Any]]) -> Callable[Concatenate[Any, P], Any]:
    """Return a method that goes through these steps by its object's `_follow`: `run` for threads, `drive` for tasks."""

    @wraps(steps)
    def go(self: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return self._follow(steps(self, *args, **options))

    return go


def ahead(steps: Steps[T]) -> Coroutine[Any, Any, T] | T:
    """Go through steps as far as nothing has to be awaited; return what goes on with them, or else their result."""
    try:
        step = next(steps)
        while step.__class__ is not CoroutineType and not _is_awaitable(step):
            step = steps.send(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return drive(steps, step)


async def drive(steps: Steps[T], *reached: Any) -> T:
    """Go through steps in a task: what they yield is awaited, if it can be. `reached` is a step that was yielded."""
    try:
        step = reached[0] if reached else next(steps)
        while True:
            try:
                value = await step if step.__class__ is CoroutineType or _is_awaitable(step) else step
            except BaseException as error:  # noqa: BLE001  the steps say what becomes of it
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _is_awaitable(step: object) -> bool:
    if step.__class__ is bool or step.__class__ is int:  # what a function of a rule returns, as a rule
        return False
    return inspect.isawaitable(step)  # takes 1 us
