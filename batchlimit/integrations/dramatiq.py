"""A middleware of dramatiq by which actors share one limit over the whole fleet."""

import math
from typing import Any

from batchlimit.base.lazy import needed

with needed(__name__, "dramatiq"):
    from dramatiq.middleware import Middleware, MiddlewareError, SkipMessage

from batchlimit import RateLimiter
from batchlimit.integrations.task_limit import TIMES, Run, TaskLimit

__all__ = ["LimitedActors"]


class LimitedActors(Middleware):
    """A middleware for actors that run as fast as a limiter lets, over the whole fleet.

    It limits actors with the option `limit_key`: text whose fields name parameters of the actor, as in "mail:{to}",
    {task} for its name, or a function of its arguments. Their option `limit_cost` is whole tokens (default 1), or a
    function of their arguments. A message without a token is enqueued again with a delay, and skipped.

    Args:
        limiter: a RateLimiter, which its owner closes.
        longest: seconds that a message is sent away for at most (default 600).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import dramatiq
        >>> from dramatiq.brokers.stub import StubBroker
        >>> broker = StubBroker()
        >>> broker.add_middleware(LimitedActors(RateLimiter.from_url("memory://", {"mail:*": "100/s", "*": "10/s"})))
        >>> @dramatiq.actor(broker=broker, limit_key="mail:{to}")
        ... def mail(to): ...
    """

    def __init__(self, limiter: RateLimiter, *, longest: float = 600.0) -> None:
        TaskLimit(limiter, longest=longest)  # what cannot work raises here
        self._limiter, self._longest = limiter, longest
        self._limits: dict[str, TaskLimit] = {}

    def __repr__(self) -> str:
        return f"<LimitedActors by {self._limiter!r}>"

    @property
    def actor_options(self) -> set[str]:
        """The options of actors: `limit_key` and `limit_cost`."""
        return {"limit_key", "limit_cost"}

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Enqueue the message again, if it has no token; a mistake in its key or its cost fails it."""
        try:
            actor = broker.get_actor(message.actor_name)
            if (key := actor.options.get("limit_key")) is None:
                return
            if (limit := self._limits.get(actor.actor_name)) is None:
                limit = TaskLimit(self._limiter, key, actor.options.get("limit_cost", 1), self._longest)
                self._limits[actor.actor_name] = limit
            times = message.options.get(TIMES, 0)
            if seconds := limit.wait(Run(actor.actor_name, actor.fn, message.args, message.kwargs, times)):
                broker.enqueue(message.copy(options={TIMES: times + 1}), delay=math.ceil(seconds * 1000))
                message.options["store_results"] = False  # else it had none, to who waits for it
                raise SkipMessage(f"no token: back in {seconds:.3f} s")
        except MiddlewareError:
            raise
        except Exception as error:  # dramatiq would only log it, and process the message without a limit
            raise MiddlewareError(f"{message.actor_name} cannot be limited: {error}") from error
