"""A dependency of taskiq by which tasks share one limit over the whole fleet: no middleware can put a task off."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from batchlimit.base.lazy import needed

with needed(__name__, "taskiq"):
    from taskiq import Context, ScheduleSource, TaskiqDepends
    from taskiq.exceptions import NoResultError
    from taskiq.kicker import AsyncKicker

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.task_limit import TIMES, AsyncTaskLimit, Run
from batchlimit.quota.template import Cost, Key

__all__ = ["LimitedRun"]


class LimitedRun:
    """A dependency of tasks that run as fast as a limiter lets, over the whole fleet.

    A task without a token is sent again, to come back in its turn, and what runs now ends with NoResultError: it has no
    result yet.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key, cost, longest: as of TaskLimit of `batchlimit.integrations.task_limit`, with the same defaults.
        source: where tasks wait that are put off; `taskiq scheduler` sends them (default None: the broker itself delays
            what has the label `delay`, as that for RabbitMQ does).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> from taskiq import InMemoryBroker
        >>> broker = InMemoryBroker()
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"mail:*": "100/s", "*": "10/s"})
        >>> @broker.task
        ... async def mail(to: str, _: None = TaskiqDepends(LimitedRun(limiter, "mail:{to}"))) -> str:
        ...     return f"mail to {to}"
        >>> task = await mail.kiq("ann")
        >>> (await task.wait_result()).return_value
        'mail to ann'
    """

    def __init__(
        self,
        limiter: AsyncRateLimiter,
        key: Key = "{task}",
        *,
        cost: Cost = 1,
        longest: float = 600.0,
        source: ScheduleSource | None = None,
    ) -> None:
        self._limit, self._source = AsyncTaskLimit(limiter, key, cost, longest), source

    def __repr__(self) -> str:
        return f"<LimitedRun by {self._limit!r}>"

    async def __call__(self, context: Annotated[Context, TaskiqDepends()]) -> None:
        """Send the task again, if it has no token."""
        message, task = context.message, context.broker.find_task(context.message.task_name)
        assert task is not None
        times = int(message.labels.get(TIMES, 0))
        run = Run(message.task_name, task.original_func, message.args, message.kwargs, times)
        if seconds := await self._limit.wait(run):
            labels = {**message.labels, TIMES: times + 1}
            again: AsyncKicker[Any, Any] = AsyncKicker(message.task_name, context.broker, labels)
            again = again.with_task_id(message.task_id)
            if self._source is None:
                await again.with_labels(delay=seconds).kiq(*message.args, **message.kwargs)
            else:
                at = datetime.now(UTC) + timedelta(seconds=seconds)
                await again.schedule_by_time(self._source, at, *message.args, **message.kwargs)
            raise NoResultError
