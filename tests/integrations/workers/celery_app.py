"""An application of Celery that notes when its tasks are admitted, for workers that tests start."""

import os
import time
from typing import Any

import redis
from celery import Celery

from batchlimit import RateLimiter
from batchlimit.integrations.celery import FleetBucket, FleetRates, LimitedTask
from batchlimit.integrations.task_limit import TIMES

STORE = os.environ["STORE"]
app = Celery("fleet", broker=STORE.replace("unix://", "redis+socket://"))
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = "ACKS_LATE" in os.environ
QUOTAS = {"api": "50/s burst 5", "*": os.environ.get("QUOTA", "100/s burst 10")}
limiter = RateLimiter.from_url(STORE, QUOTAS, connect_timeout=30, deadline=30)
notes = redis.Redis.from_url(STORE)


class Timed(LimitedTask):
    """Knows between which two instants it was admitted."""

    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self.request.began = time.time()
        super().before_start(task_id, args, kwargs)
        self.request.admitted = time.time()


@app.task(base=Timed, bind=True, limiter=limiter, max_retries=0, ignore_result=True)
def note(self: Any, number: int) -> None:
    request = self.request
    times = (request.headers or {}).get(TIMES, 0)
    notes.rpush("ran", f"{request.began} {request.admitted} {number} {times} {request.retries} {os.getpid()}")


@app.task(base=Timed, bind=True, limiter=limiter, limit_key="api", ignore_result=True)
def call(self: Any, pause: float) -> None:
    """Does as a task does whose upstream answered 429, if it is to pause."""
    notes.rpush("called", f"{self.request.began} {self.request.admitted}")
    if pause:
        before = time.time()
        limiter.pause("api", pause, why="429 of upstream")
        notes.rpush("paused", before)


class TimedBucket(FleetBucket):
    """Notes between which two instants it admits."""

    def can_consume(self, tokens: int = 1) -> bool:
        began = time.time()
        if is_admitted := super().can_consume(tokens):
            notes.rpush("spans", f"{began} {time.time()}")
        return is_admitted


class Rates(FleetRates):
    limiter = limiter

    def _bucket(self, task: Any) -> FleetBucket | None:
        return TimedBucket(self.limiter, task.name) if super()._bucket(task) else None


app.steps["consumer"].add(Rates)


@app.task(bind=True, rate_limit="1/m", ignore_result=True)
def native(self: Any, number: int) -> None:
    """Of its own rate the fleet's limiter makes another one."""
    notes.rpush("native", f"{number} {os.getpid()}")
