"""assert_limited: so many calls are admitted, and no more."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, overload

from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps, ahead
from batchlimit.errors import RateLimited
from batchlimit.testing.scene import SCENE
from batchlimit.testing.world import VirtualWorld

P = ParamSpec("P")
_TOO_MANY = 429
_EXHAUSTED = "RESOURCE_EXHAUSTED"


@overload
def assert_limited(
    call: Callable[..., Awaitable[object]], *args: Any, after: int, within: float | str | None = None, **kwargs: Any
) -> Awaitable[None]: ...


@overload
def assert_limited(
    call: Callable[..., object], *args: Any, after: int, within: float | str | None = None, **kwargs: Any
) -> None: ...


def assert_limited(
    call: Callable[..., object], *args: Any, after: int, within: float | str | None = None, **kwargs: Any
) -> Awaitable[None] | None:
    """Check that a limit admits `after` calls and refuses the next one.

    A call counts as refused if it raises RateLimited, or an exception with status 429. It also does if it returns
    False, a Decision that is false, or a response with status 429. A call of gRPC counts if its status is
    RESOURCE_EXHAUSTED.

    Args:
        call: a function, a coroutine function, or a method of a test client.
        args, kwargs: what it is called with.
        after: how many calls are admitted.
        within: the length of time that the limit is for, such as "1m" (default None: not checked). After that time as
            many calls must be admitted again, and no more. Needs `frozen_limits`.

    Returns:
        None; for a coroutine function something to await.

    Raises:
        AssertionError: another number of calls was admitted.
        RuntimeError: `within` is given, and time is not frozen.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import assert_limited, frozen_limits
        >>> with frozen_limits():
        ...     limiter = RateLimiter.from_url("redis://localhost:6379/0", "5/minute")
        ...     assert_limited(limiter.try_acquire, "ann", after=5, within="1m")
    """
    return ahead(_steps(lambda: call(*args, **kwargs), after, within))


def _steps(call: Callable[[], object], after: int, within: float | str | None) -> Steps[None]:
    yield from _exactly(call, after, "")
    if within is not None:
        world = next((world for world in reversed(SCENE.worlds) if isinstance(world, VirtualWorld)), None)
        if world is None:
            raise RuntimeError("time would have to pass for real: use frozen_limits, or leave out `within`")
        world.time.advance(within)
        yield from _exactly(call, after, f" {within} later")


def _exactly(call: Callable[[], object], after: int, when: str) -> Steps[None]:
    for number in range(1, after + 1):
        if (yield from _is_refused(call)):
            raise AssertionError(f"call {number}{when} was refused: {after} should be admitted")
    if not (yield from _is_refused(call)):
        raise AssertionError(f"call {after + 1}{when} was admitted: no more than {after} should be")


def _is_refused(call: Callable[[], object]) -> Steps[bool]:
    try:
        outcome = yield call()
    except Exception as error:
        if isinstance(error, RateLimited) or _says_too_many(error):
            return True
        raise
    return outcome is False or (isinstance(outcome, Decision) and not outcome) or _says_too_many(outcome)


def _says_too_many(thing: object) -> bool:
    if _TOO_MANY in (getattr(thing, "status_code", None), getattr(thing, "status", None)):
        return True
    code = getattr(thing, "code", None)
    told = code() if inspect.ismethod(code) else code
    return told == _TOO_MANY or getattr(told, "name", None) == _EXHAUSTED
