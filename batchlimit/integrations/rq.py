"""A worker of RQ whose jobs share one limit over the whole fleet: it decides before it forks."""

import functools
from datetime import UTC, datetime, timedelta
from typing import ClassVar, NoReturn

from batchlimit.base.lazy import needed

with needed(__name__, "rq"):
    from rq import Worker
    from rq.job import Job
    from rq.queue import Queue

from batchlimit import RateLimiter
from batchlimit.integrations.task_limit import TIMES, Run, TaskLimit

__all__ = ["LimitedWorker"]


class LimitedWorker(Worker):
    """A worker that runs jobs as fast as a limiter lets, over the whole fleet.

    It limits jobs whose `meta` has a `limit_key`, and charges them `limit_cost` tokens (default 1). A job without a
    token is scheduled for its turn: no retry is used up, and no process is forked for it. A worker with a scheduler has
    to run, which looks once a second.

    Attributes:
        limiter: a RateLimiter; a class of your own has it.
        limit_longest: seconds that a job is sent away for at most (default 600).

    Example:
        >>> class Mailer(LimitedWorker):
        ...     limiter = RateLimiter.from_url("memory://", {"mail:*": "100/s burst 100", "*": "10/s"})
    """

    limiter: ClassVar[RateLimiter]
    limit_longest: ClassVar[float] = 600.0

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run a job, or schedule it for later; one whose key or cost cannot be fails as it runs."""
        times, seconds = int(job.meta.get(TIMES, 0)), 0.0
        try:
            if (key := job.meta.get("limit_key")) is not None:
                limit = TaskLimit(self.limiter, lambda: key, int(job.meta.get("limit_cost", 1)), self.limit_longest)
                seconds = limit.wait(Run(str(job.func_name), lambda: None, (), {}, times))
        except (TypeError, ValueError) as error:  # a worker in whose own process anything raises quits
            job.perform = functools.partial(_fail, error)  # type: ignore[method-assign]
        if seconds:
            job.meta[TIMES] = times + 1
            with self.connection.pipeline() as pipeline:
                queue.schedule_job(job, datetime.now(UTC) + timedelta(seconds=seconds), pipeline=pipeline)
                pipeline.lrem(queue.intermediate_queue_key, 1, job.id)
                pipeline.execute()
            self.log.info("no token for %s: back in %.3f s", job.id, seconds)
        else:
            super().execute_job(job, queue)


def _fail(error: Exception) -> NoReturn:
    raise error
