"""What a client on asyncio does when a call ends, which may be long after the interceptor has returned it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Endings:
    """Tasks that run at the end of calls, one each."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Endings: {len(self._tasks)} under way>"

    def after(self, call: Any, settle: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `settle` in a task when a call has ended."""

        def ended(_: object) -> None:
            task = asyncio.get_running_loop().create_task(settle())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        try:
            call.add_done_callback(ended)
        except NotImplementedError:  # the response of an interceptor behind this one: there is no call
            ended(call)

    async def wait(self) -> None:
        """Wait until no task is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)
