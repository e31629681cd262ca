"""Other semaphores over Redis: redis-py's Lock, a sorted set that is polled, and the one of redis-rate-limiters."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import redis

Enter = Callable[[], AbstractContextManager[Any]]


class Never:
    """The permit of a semaphore that does not know what it lost."""

    token, lost = 0, False


def lock(url: str, sleep: float) -> Enter:
    """redis-py's Lock, which polls."""
    client = redis.Redis.from_url(url)

    @contextmanager
    def enter() -> Iterator[Any]:
        with client.lock("key", timeout=10.0, sleep=sleep):
            yield Never

    return enter


def zset(url: str, limit: int, sleep: float) -> Enter:
    """A semaphore as it is found in many books: members of a sorted set by the caller's clock, and polling."""
    client = redis.Redis.from_url(url)

    @contextmanager
    def enter() -> Iterator[Any]:
        name = uuid.uuid4().hex
        while not _is_among(client, name, limit):
            time.sleep(sleep)
        try:
            yield Never
        finally:
            client.zrem("semaphore", name)

    return enter


def _is_among(client: redis.Redis, name: str, limit: int) -> bool:
    now = time.time()
    pipe = client.pipeline()
    pipe.zremrangebyscore("semaphore", 0, now - 10.0)
    pipe.zadd("semaphore", {name: now})
    pipe.zrank("semaphore", name)
    if pipe.execute()[-1] < limit:
        return True
    client.zrem("semaphore", name)
    return False


def blpop(url: str, limit: int) -> Enter:
    """The semaphore of redis-rate-limiters: a list of so many elements, and BLPOP. A killed holder's one is gone."""
    from limiters import SyncSemaphore

    semaphore = SyncSemaphore(connection=redis.Redis.from_url(url), name="key", capacity=limit)

    @contextmanager
    def enter() -> Iterator[Any]:
        with semaphore:
            yield Never

    return enter
