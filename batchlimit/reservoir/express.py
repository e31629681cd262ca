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
from batchlimit.reservoir.sizing import Usage, wanted
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter
from batchlimit.waiting import NO_WAIT


def ask(reservoir: Reservoir, waiter: Waiter, now: float) -> Fetch | None:
    """Do as `join` and then `step`, where that is to ask for one who is alone; None: it is not, and nothing changed."""
    leased, cost, quota, view = reservoir.tokens, waiter.cost, reservoir.quota, reservoir._view
    if (
        reservoir._in_flight is not None
        or reservoir._queue
        or leased.free
        or length_hint(leased.lock_free)
        or leased.pending
        or leased.borrowed
        or (leased.prompt and reservoir.is_held_up)
        or reservoir.is_retired
        or not 0 < cost <= reservoir.largest_cost
        or NO_WAIT < waiter.deadline <= now
        or reservoir._denials.until(cost) > now
    ):
        return None
    reservoir._queue.join(waiter)
    _count(reservoir, cost, now)
    rich = view.is_rich(quota) if quota.also else view.level >= ALPHA * quota.burst
    want = wanted(reservoir._sizer, Usage(quota, reservoir._demand.rate, reservoir._last_target, 0, rich))
    max_wait = min(furthest(quota), waiter.deadline - now)
    if waiter.deadline == NO_WAIT:
        waiter.asked, max_wait = waiter.asked + 1, 0.0
    return reservoir._send(now, waiter, cost, (cost, cost, want if want > cost else cost), 0, max_wait)


def serve(reservoir: Reservoir, waiter: Waiter, fetch: Fetch, grant: Grant, now: float, jitter: float) -> bool:
    """Do as `granted`, where that is to serve the waiter, and nobody else; False: it is not, and nothing changed."""
    leased, line, cost = reservoir.tokens, reservoir._queue, waiter.cost
    if (
        reservoir._in_flight is not fetch
        or reservoir._fallback.bucket is not None
        or line.first is not waiter
        or len(line) > 1
        or grant.quota is not None
        or grant.starts_in > 0.0
        or grant.granted < cost
        or now >= fetch.sent + grant.lease
    ):
        return False
    _count(reservoir, cost, now)
    reservoir._in_flight = reservoir._lost_seq = reservoir._silence = None
    reservoir._view.learn(fetch, grant, now)
    reservoir._denials.learn(fetch, grant, reservoir.quota, reservoir._demand.rate, now, jitter)
    leased.credit(fetch, grant, now)
    verdict = Admit(leased.expires, leased.generation)  # first: without a call in between nobody is interrupted there
    leased.reserved_for_waiters -= cost
    waiter.told = leased.told
    if waiter.tentative:
        leased._pledged += cost
        leased.prompt += cost if waiter.prompt else 0
    waiter.verdict = verdict
    line.dissolve()
    leased._base -= cost
    leased.admitted += cost
    reservoir._used, reservoir._untouched = now, False
    if leased.reserved_for_waiters:
        rest = leased.reserved_for_waiters
        leased.reserved_for_waiters = 0
        leased.free += rest
        reservoir._set_watermark(now)
    return True


def _count(reservoir: Reservoir, cost: int, now: float) -> None:
    """Find out what was spent and asked for, where all that is here is saved for one who is alone in line."""
    leased = reservoir.tokens
    spent, leased._base = leased._base - leased.reserved_for_waiters, leased.reserved_for_waiters
    leased.admitted += spent
    total = leased.admitted + reservoir.refused + cost
    asked, reservoir._asked = total - reservoir._asked, total
    reservoir._demand.observe(asked, now)
    if spent:
        reservoir._untouched = False
    if asked or spent:
        reservoir._used = now
