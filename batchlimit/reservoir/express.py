"""The usual miss, in one go: a caller who finds nobody in line asks for itself, and is served by what comes.

What is done here is what the Reservoir's rules do, in their order, less all that there is nothing to do for: nobody to
refuse, to wake or to pay. The claim stands in line as ever, so whoever joins it meanwhile, whoever is interrupted and
whatever else befalls is the rules' affair. By way of them a miss was 270 calls of functions, 34 us, and twice that
right after a wait for the network; this is a third. tests/reservoir/test_express.py holds the two against each other.
"""

from operator import length_hint

from batchlimit.bucket.fair_share import ALPHA
from batchlimit.bucket.messages import Grant
from batchlimit.reservoir.requests import furthest
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import Usage, wanted
from batchlimit.reservoir.waiter import NO_WAIT, Admit, Fetch, Waiter


def ask(reservoir: Reservoir, claim: Waiter, now: float) -> Fetch | None:
    """Do as `join` and then `step`, where that is to ask for one who is alone; None: it is not, and nothing changed."""
    stock, cost, quota, terms = reservoir.stock, claim.cost, reservoir.quota, reservoir._terms
    if (
        reservoir._busy is not None
        or reservoir._line
        or stock.loose
        or length_hint(stock.ready)
        or stock.coming
        or stock.borrowed
        or (stock.prompt and reservoir.is_held_up)
        or reservoir.retired
        or not 0 < cost <= reservoir.largest
        or NO_WAIT < claim.deadline <= now
        or reservoir._pace.until(cost) > now
    ):
        return None
    reservoir._line.join(claim)
    _count(reservoir, cost, now)
    rich = terms.is_rich(quota) if quota.also else terms.level >= ALPHA * quota.burst
    want = wanted(reservoir._sizer, Usage(quota, reservoir._demand.rate, reservoir._last_want, 0, rich))
    max_wait = min(furthest(quota), claim.deadline - now)
    if claim.deadline == NO_WAIT:
        claim.asked, max_wait = claim.asked + 1, 0.0
    return reservoir._send(now, claim, cost, (cost, cost, want if want > cost else cost), 0, max_wait)


def serve(reservoir: Reservoir, claim: Waiter, fetch: Fetch, grant: Grant, now: float, jitter: float) -> bool:
    """Do as `granted`, where that is to serve the claim, and nobody else; False: it is not, and nothing changed."""
    stock, line, cost = reservoir.stock, reservoir._line, claim.cost
    if (
        reservoir._busy is not fetch
        or reservoir._standby.fallback is not None
        or line.first is not claim
        or len(line) > 1
        or grant.quota is not None
        or grant.starts_in > 0.0
        or grant.granted < cost
        or now >= fetch.sent + grant.lease
    ):
        return False
    _count(reservoir, cost, now)
    reservoir._busy = reservoir._lost_seq = None
    reservoir._terms.learn(fetch, grant, now)
    reservoir._pace.learn(fetch, grant, reservoir.quota, reservoir._demand.rate, now, jitter)
    stock.credit(fetch, grant, now)
    verdict = Admit(stock.expires, stock.term)  # first: without a call in between nobody is interrupted there
    stock.saved -= cost
    claim.told = stock.told
    if claim.tentative:
        stock._pledged += cost
        stock.prompt += cost if claim.prompt else 0
    claim.verdict = verdict
    line.dissolve()
    stock._base -= cost
    stock.admitted += cost
    reservoir._used, reservoir._untouched = now, False
    if stock.saved:
        rest = stock.saved
        stock.saved = 0
        stock.loose += rest
        reservoir._aim(now)
    return True


def _count(reservoir: Reservoir, cost: int, now: float) -> None:
    """Find out what was spent and asked for, where all that is here is saved for one who is alone in line."""
    stock = reservoir.stock
    spent, stock._base = stock._base - stock.saved, stock.saved
    stock.admitted += spent
    total = stock.admitted + reservoir.refused + cost
    asked, reservoir._asked = total - reservoir._asked, total
    reservoir._demand.observe(asked, now)
    if spent:
        reservoir._untouched = False
    if asked or spent:
        reservoir._used = now
