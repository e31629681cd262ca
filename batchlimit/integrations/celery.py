"""Rate limits of Celery that hold over the whole fleet: a base of tasks, which reschedules what has no token."""

import functools
from typing import Any, ClassVar

try:
    from celery import Task
    from celery.exceptions import Ignore, Reject
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "batchlimit.integrations.celery needs celery, of the 'celery' extra: pip install 'batchlimit[celery]'",
        name="celery",
    ) from error

from batchlimit import RateLimiter
from batchlimit.integrations.workers.task_limit import TIMES, Run, TaskLimit
from batchlimit.quota.template import Cost, Key

__all__ = ["LimitedTask"]


class LimitedTask(Task):  # type: ignore[misc]
    """A base of tasks that run as fast as a limiter lets, over the whole fleet.

    A task without a token is sent again, to come back when there is one: the worker never sleeps, and goes on with
    others. It keeps its id, its options and its place in chains and chords, and none of its `max_retries` is used up.
    Refused tasks come back one after the other, and those that are new line up behind them. Tasks that are called, or
    run eagerly, are not limited.

    Attributes:
        limiter: a RateLimiter, which may be made before the worker forks.
        limit_key: what a task is charged to (default "{task}", its name): text whose fields name its parameters, as in
            "mail:{to}", or a function of its arguments.
        limit_cost: whole tokens (default 1), or a function of its arguments.
        limit_longest: seconds that a task is sent away for at most (default 600). It has to be less than the visibility
            timeout of a broker on Redis or SQS, which gives a task to somebody else after that.

    Example:
        >>> from celery import Celery
        >>> app = Celery("shop", broker="memory://")
        >>> limiter = RateLimiter.from_url("memory://", {"mail:*": "100/s burst 20", "*": "10/s"})
        >>> @app.task(base=LimitedTask, limiter=limiter, limit_key="mail:{to}")
        ... def mail(to):
        ...     return f"mail to {to}"
        >>> mail("ann")
        'mail to ann'
    """

    abstract = True
    limiter: ClassVar[RateLimiter | None] = None
    limit_key: ClassVar[Key] = "{task}"
    limit_cost: ClassVar[Cost] = 1
    limit_longest: ClassVar[float] = 600.0

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Send the task again, if it has no token; Celery calls this before each run.

        Args:
            task_id: its id.
            args, kwargs: its arguments.

        Raises:
            Ignore: it was sent again.
            Reject: it could not be sent, and goes back to the broker.
        """
        super().before_start(task_id, args, kwargs)
        request = self.request
        if request.is_eager:
            return
        times = int((request.headers or {}).get(TIMES, 0))
        if seconds := self._limit.wait(Run(self.name, self.run, args, kwargs, times)):
            self._send_again(seconds, times + 1)

    @functools.cached_property
    def _limit(self) -> TaskLimit:
        if self.limiter is None:
            raise ValueError(f"the task {self.name} has no limiter: @app.task(base=LimitedTask, limiter=limiter)")
        key: Any = getattr(self.limit_key, "__func__", self.limit_key)  # a function is no method of the task
        cost: Any = getattr(self.limit_cost, "__func__", self.limit_cost)
        return TaskLimit(self.limiter, key, cost, self.limit_longest)

    def _send_again(self, seconds: float, times: int) -> None:
        again = self.signature_from_request(countdown=seconds)
        again.options["headers"] = {**again.options.get("headers", {}), TIMES: times}
        try:
            again.apply_async()
        except Exception as error:
            raise Reject(error, requeue=True) from error
        raise Ignore(f"no token: back in {seconds:.3f} s")
