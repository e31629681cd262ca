"""A middleware of procrastinate by which jobs share one limit over the whole fleet."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from batchlimit.base.lazy import needed

with needed(__name__, "procrastinate"):
    from procrastinate import BaseRetryStrategy, RetryDecision

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.task_limit import AsyncTaskLimit, Run
from batchlimit.quota.template import Key

__all__ = ["LimitedJobs"]


class _PutOff(Exception):
    """A job has no token."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no token: back in {seconds:.3f} s")
        self.seconds = seconds


class _Again(BaseRetryStrategy):
    """Puts a job off that has no token; of all else the strategy of its task decides."""

    def __init__(self, inner: BaseRetryStrategy | None) -> None:
        self._inner = inner

    def get_retry_decision(self, *, exception: BaseException, job: Any) -> RetryDecision | None:
        if isinstance(exception, _PutOff):
            return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=exception.seconds))
        return None if self._inner is None else self._inner.get_retry_decision(exception=exception, job=job)


class LimitedJobs:
    """A worker's middleware by which jobs run as fast as a limiter lets, over the whole fleet.

    A job without a token is put off until its turn, whatever the retry strategy of its task. Procrastinate counts each
    as an attempt: a strategy with `max_attempts` sees more of them than there were. A worker looks for jobs that are
    due every `fetch_job_polling_interval` (s).

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        keys: what the jobs of each task are charged to, by the task's name. A key is a function of the arguments,
            or text that names parameters, as in "mail:{to}"; {task} is the name. Other tasks are not limited.
        cost: whole tokens of each job (default 1).
        longest: seconds that a job is put off for at most (default 600).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> limiter = AsyncRateLimiter.from_url("memory://", {"mail:*": "100/s burst 500", "*": "10/s"})
        >>> limits = LimitedJobs(limiter, {"shop.mail": "mail:{to}"})  # app.run_worker(worker_middleware=[limits])
    """

    def __init__(
        self, limiter: AsyncRateLimiter, keys: Mapping[str, Key], *, cost: int = 1, longest: float = 600.0
    ) -> None:
        self._limits = {task: AsyncTaskLimit(limiter, key, cost, longest) for task, key in keys.items()}

    def __repr__(self) -> str:
        return f"<LimitedJobs of {', '.join(self._limits)}>"

    async def __call__(self, call_next: Callable[[], Awaitable[Any]], context: Any, worker: Any) -> Any:
        """Run a job, or put it off."""
        job, task = context.job, worker.app.tasks.get(context.job.task_name)
        limit = task and (self._limits.get(task.name) or self._limits.get(job.task_name))  # which may be an alias
        if limit:
            args = (context,) if task.pass_context else ()
            run = Run(task.name, task.func, args, job.task_kwargs, job.attempts)
            if seconds := await limit.wait(run):
                if not isinstance(task.retry_strategy, _Again):
                    task.retry_strategy = _Again(task.retry_strategy)
                raise _PutOff(seconds)
        return await call_next()
