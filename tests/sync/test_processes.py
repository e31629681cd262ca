"""Many processes at one server: stopped, killed or at full speed, together they spend what one could."""

import signal
from contextlib import ExitStack

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores import RedisStore
from tests.servers import Server
from tests.sync.stage import KEY, lapsed, process, spend, until

HUNDRED = Quota(0.001, 100)

pytestmark = pytest.mark.usefixtures("far_away")


def test_the_tokens_of_a_killed_process_are_lost_and_not_doubled(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    program = """
    limiter = limiter_of("0.001/s burst 100", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with process(program, valkey.url, prefix) as other:
        assert other.end() == -signal.SIGKILL
    with RateLimiter(valkey_store, HUNDRED, sizer=FixedBatch(50)) as here:
        spent = spend(here)
    until(lambda: lapsed(valkey_store, KEY, HUNDRED))
    assert spent + valkey_store.peek(KEY, HUNDRED).level == 50
    assert spent >= 49  # the last one may be kept for the other until it is known to be gone


def test_instances_that_wait_for_tokens_all_get_theirs(valkey: Server, prefix: str) -> None:
    program = """
    limiter = limiter_of("500/s burst 20")
    say("ready")
    listen()
    for _ in range(50):
        limiter.acquire(KEY)
    say(limiter.statistics().admitted)
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(process(program, valkey.url, prefix)) for _ in range(3)]
        for each in processes:
            assert each.hear() == "ready"
        for each in processes:
            each.tell()
        assert [each.hear() for each in processes] == ["50"] * 3
        assert [each.end() for each in processes] == [0] * 3
