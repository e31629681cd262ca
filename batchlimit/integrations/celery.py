"""Rate limits of Celery over the whole fleet: a base of tasks that reschedules, and a bootstep for `rate_limit`."""

import functools
from typing import Any, ClassVar

from batchlimit.base.lazy import needed

with needed(__name__, "celery"):
    from celery import Task, bootsteps
    from celery.exceptions import Ignore, Reject
    from kombu.utils.limits import TokenBucket

from batchlimit import RateLimiter, StoreUnavailable
from batchlimit.integrations.task_limit import TIMES, Run, TaskLimit
from batchlimit.quota.template import Cost, Key

__all__ = ["FleetBucket", "FleetRates", "LimitedTask"]

_AWAY = 1.0
"""Seconds after which a worker asks again at the latest: the store may be back, or the limit raised."""
_SOONEST = 0.01
"""Seconds that the loop of a worker sleeps at least while more tasks wait than it looks at."""


class LimitedTask(Task):  # type: ignore[misc]
    """A base of tasks that run as fast as a limiter lets, over the whole fleet.

    A task without a token is sent again, to come back in its turn. It keeps its id, its options and its place in chains
    and chords, and none of its `max_retries` is used up. Tasks that are called, or run eagerly, are not limited.

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
        """Send the task again, if it has no token; Celery calls this before each run."""
        super().before_start(task_id, args, kwargs)
        request = self.request
        if request.is_eager:
            return
        times = int((request.headers or {}).get(TIMES, 0))
        if seconds := self._limit.wait(Run(self.name, self.run, args, kwargs, times)):
            again = self.signature_from_request(countdown=seconds)
            again.options["headers"] = {**again.options.get("headers", {}), TIMES: times + 1}
            try:
                again.apply_async()
            except Exception as error:
                if not self.acks_late:  # its broker has it no more, so it fails
                    raise
                raise Reject(error, requeue=True) from error
            raise Ignore(f"no token: back in {seconds:.3f} s")

    @functools.cached_property
    def _limit(self) -> TaskLimit:
        if self.limiter is None:
            raise ValueError(f"the task {self.name} has no limiter: @app.task(base=LimitedTask, limiter=limiter)")
        key: Any = getattr(self.limit_key, "__func__", self.limit_key)  # a function is no method of the task
        cost: Any = getattr(self.limit_cost, "__func__", self.limit_cost)
        return TaskLimit(self.limiter, key, cost, self.limit_longest)


class FleetBucket(TokenBucket):
    """The tokens of one task's `rate_limit`, as a worker asks for them: of a limiter, which the whole fleet shares."""

    def __init__(self, limiter: RateLimiter, task: str) -> None:
        super().__init__(1.0)  # type: ignore[no-untyped-call, unused-ignore]  # as mypy follows kombu, or not
        self._limiter, self._task, self._hold = limiter, task, 0.0
        limiter.decide(task, 0)  # one without a quota raises as the worker starts: once it works, it would quit

    def can_consume(self, tokens: int = 1) -> bool:
        """Whether a task may run now; if it may, it is charged."""
        try:
            decision = self._limiter.decide(self._task, tokens)
        except StoreUnavailable:
            self._hold = _AWAY
            return False
        self._hold = min(decision.retry_after, _AWAY)
        return decision.allowed

    def expected_time(self, tokens: int = 1) -> float:
        """Return after how many seconds the worker asks again."""
        return self._hold


class FleetRates(bootsteps.Step):  # type: ignore[misc]
    """A bootstep of workers by which the `rate_limit` of each task holds over the whole fleet, not for each worker.

    Tasks wait in the memory of their worker, as they do without it, and the main process decides for its children. They
    are charged to their name; the limiter says how many tokens a key has. `celery control rate_limit` changes nothing:
    set an override. Workers that wait hold as many tasks as they prefetch, so give limited tasks a queue of their own.

    Attributes:
        limiter: a RateLimiter; a class of your own has it.

    Example:
        >>> from celery import Celery
        >>> app = Celery("shop", broker="memory://")
        >>> class Rates(FleetRates):
        ...     limiter = RateLimiter.from_url("memory://", {"shop.mail": "100/s burst 20", "*": "10/s"})
        >>> _ = app.steps["consumer"].add(Rates)
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    limiter: ClassVar[RateLimiter]

    def __init__(self, consumer: Any, **options: Any) -> None:
        if not isinstance(getattr(self, "limiter", None), RateLimiter):
            raise ValueError(f"{type(self).__name__} has no limiter: limiter = RateLimiter.from_url(...) in its class")
        super().__init__(consumer, **options)
        consumer.bucket_for_task = self._bucket
        if (hub := consumer.hub) is not None:
            # Each waiting task has a timer. Where more of them are due than it fires at a time, kombu sleeps for 1 s.
            hub.fire_timers = functools.partial(type(hub).fire_timers, hub, min_delay=_SOONEST)
        consumer.reset_rate_limits()

    def _bucket(self, task: Any) -> FleetBucket | None:
        return FleetBucket(self.limiter, task.name) if getattr(task, "rate_limit", None) else None
