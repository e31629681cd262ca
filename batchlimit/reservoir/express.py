"""The usual miss, in one go: a caller who finds nobody in line asks for itself, and is served by what comes.

What is done here is what the Reservoir's rules do, in their order, less all that there is nothing to do for: nobody to
refuse, to wake or to pay. The waiter stands in line as ever, so whoever joins it meanwhile, whoever is interrupted and
whatever else befalls is the rules' affair. By way of them a miss was 270 calls of functions, 34 us, and twice that
right after a wait for the network; this is a third. tests/reservoir/test_express.py holds the two against each other.
"""

from operator import length_hint

from batchlimit.bucket.fair_share import ALPHA
from batchlimit.bucket.messages import Grant
from batchlimit.reservoir.requests import furthest
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import Fetch, Waiter
from batchlimit.waiting import NO_WAIT


def ask(reservoir: Reservoir, waiter: Waiter, now: float) -> Fetch | None:
    """Do as `join`, `step` and `to_wake`, where that is to ask for a caller who is alone; None: nothing changed."""
    state, requests = reservoir.state, reservoir.requests
    tokens, lease, cost, quota, view = state.tokens, state.lease, waiter.cost, state.quota, state.view
    if (
        state.in_flight is not None
        or state.queue
        or tokens.free
        or length_hint(tokens.lock_free)
        or lease.pending
        or lease.borrowed
        or (lease.prompt and reservoir.forecast.is_held_up)
        or state.is_retired
        or not 0 < cost <= state.largest_cost
        or NO_WAIT < waiter.deadline <= now
        or state.denials.until(cost) > now
    ):
        return None
    state.queue.join(waiter)
    state.count(now)
    want = requests.target(0, view.is_rich(quota) if quota.also else view.level >= ALPHA * quota.burst)
    max_wait = min(furthest(quota), waiter.deadline - now)
    if waiter.deadline == NO_WAIT:
        waiter.asked, max_wait = waiter.asked + 1, 0.0
    fetch = requests.send(now, waiter, cost, (cost, cost, want if want > cost else cost), 0, max_wait)
    state.publish()
    return fetch


def serve(reservoir: Reservoir, waiter: Waiter, fetch: Fetch, grant: Grant, now: float, jitter: float) -> bool:
    """Do as `granted` and `to_wake`, where that is to serve this waiter and nobody else; False: nothing changed."""
    state = reservoir.state
    lease, queue, cost = state.lease, state.queue, waiter.cost
    if (
        state.in_flight is not fetch
        or state.fallback.bucket is not None
        or queue.first is not waiter
        or len(queue) > 1
        or grant.quota is not None
        or grant.starts_in > 0.0
        or grant.granted < cost
        or now >= fetch.sent + grant.lease
    ):
        return False
    state.count(now)
    state.in_flight = reservoir.requests.lost_number = reservoir.outage = None
    state.view.learn(fetch, grant, now)
    state.denials.learn(fetch, grant, state.quota, state.demand.rate, now, jitter)
    lease.credit(fetch, grant, now)
    lease.serve(waiter)
    queue.withdraw(waiter)
    state.spent += cost  # the next count need not
    state.used, state.is_untouched = now, False
    if lease.reserved_for_waiters:
        lease.reserve_for(queue)
        reservoir.prefetch.set_watermark(now)
    state.publish()
    return True
