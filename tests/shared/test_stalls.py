"""A network that holds packets up for about a lease: the permit is lost or held, and never lost and then held."""

import contextlib
import random
import threading
from typing import Any

from batchlimit import ConcurrencyLimited, StoreUnavailable
from batchlimit.shared import Shared, SharedConcurrencyLimiter, SharedPermit
from tests.depth import only_deep
from tests.relay import Relay
from tests.servers import Server

LEASE = 0.3


def patient(limiter: SharedConcurrencyLimiter) -> SharedPermit:
    while True:
        with contextlib.suppress(StoreUnavailable):  # of the last stall: its circuit breaker is open
            return limiter.acquire("gpu", timeout=60.0)


@only_deep
def test_in_300_stalls_no_permit_revives(valkey: Server, prefix: str) -> None:
    limits, rng = {"gpu": Shared(1, lease=LEASE)}, random.Random(27)
    options: Any = {"prefix": prefix, "deadline": 60.0, "connect_timeout": 60.0}
    lost = revived = 0
    with (
        Relay(valkey.url, 0.0001) as relay,
        SharedConcurrencyLimiter.from_url(relay.url, limits, **options) as far,
        SharedConcurrencyLimiter.from_url(valkey.url, limits, **options) as near,
    ):
        for _ in range(300):
            permit, over, seen = patient(far), threading.Event(), list[bool]()

            def watch(permit: Any = permit, over: Any = over, seen: Any = seen) -> None:
                while not over.wait(0.0005):
                    if permit.lost != (seen or [False])[-1]:
                        seen.append(permit.lost)

            thread = threading.Thread(target=watch)
            thread.start()
            relay.drop()
            over.wait(rng.uniform(0.75, 1.3) * LEASE)
            relay.restore()
            with contextlib.suppress(ConcurrencyLimited, StoreUnavailable):  # the far one holds it, or a slow machine
                near.acquire("gpu", timeout=LEASE / 3).release()
            over.set()
            thread.join()
            permit.release()
            lost += bool(seen)
            revived += len(seen) > 1
    assert revived == 0, f"{lost} of 300 permits were lost, {revived} of them revived"
    assert lost > 30
