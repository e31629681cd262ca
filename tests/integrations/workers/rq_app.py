"""Jobs and a worker of RQ, for workers that tests start."""

import os

import redis
import rq

from batchlimit import RateLimiter
from batchlimit.integrations.rq import LimitedWorker

STORE = os.environ.get("STORE", "redis://localhost:6379/0")


class Mailer(LimitedWorker):
    """A worker with a limit."""

    limiter = RateLimiter.from_url(STORE, {"mail:*": "5/s burst 2", "*": "1/hour"}, connect_timeout=30, deadline=30)


def mail(number: int) -> int:
    job = rq.get_current_job()
    assert job is not None
    with redis.Redis.from_url(STORE) as client:
        client.rpush("ran", f"{number} {job.meta.get('batchlimit', 0)} {job.retries_left}")
    return number
