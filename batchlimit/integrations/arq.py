"""A decorator for jobs of arq that share one limit over the whole fleet."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from batchlimit.base.lazy import needed

with needed(__name__, "arq"):
    from arq.constants import retry_key_prefix
    from arq.worker import Retry

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.task_limit import AsyncTaskLimit, Run
from batchlimit.quota.template import Cost, Key

__all__ = ["limited"]

Job = TypeVar("Job", bound=Callable[..., Awaitable[Any]])
_SOON = 0.1
"""Seconds within which a job counts as new that begins when it was to."""


def limited(
    limiter: AsyncRateLimiter, key: Key = "{task}", *, cost: Cost = 1, longest: float = 600.0
) -> Callable[[Job], Job]:
    """Return a decorator for a job that runs as fast as a limiter lets, over the whole fleet.

    A job without a token is deferred, and none of its `max_tries` is used up. By `retry_jobs=False` of its worker it
    would end as failed. The decorated function may be called with an empty context; then it is not limited.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key, cost, longest: as of TaskLimit of `batchlimit.integrations.task_limit`, with the same defaults; the context
            is the first argument of a function.

    Returns:
        The decorator.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"mail:*": "100/s", "*": "10/s"})
        >>> @limited(limiter, "mail:{to}")
        ... async def mail(ctx, to):
        ...     return f"mail to {to}"
        >>> await mail({}, "ann")
        'mail to ann'
    """
    limit = AsyncTaskLimit(limiter, key, cost, longest)

    def decorate(job: Job) -> Job:
        @functools.wraps(job)
        async def run(context: dict[Any, Any], *args: Any, **kwargs: Any) -> Any:
            if "job_id" in context:
                # A job that was deferred, by us or else, counts as once: arq has no place to note how often.
                late = context["score"] / 1000 - context["enqueue_time"].timestamp()
                run = Run(job.__qualname__, job, (context, *args), kwargs, int(late > _SOON))
                if seconds := await limit.wait(run):
                    await context["redis"].decr(retry_key_prefix + context["job_id"])  # it was no try
                    raise Retry(defer=seconds)
            return await job(context, *args, **kwargs)

        return run  # type: ignore[return-value]

    return decorate
