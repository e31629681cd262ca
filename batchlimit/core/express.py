"""The usual miss, in one go: a caller who finds nobody in line asks for itself, and is served by what comes.

What is done here is what the Reservoir's rules do, in their order, less all that there is nothing to do for: nobody to
refuse, to wake or to pay. The claim stands in line as ever, so whoever joins it meanwhile, whoever is interrupted and
whatever else befalls is the rules' affair. By way of them a miss took 270 calls of functions, 34 us; tests/core holds
the two against each other.
"""

from operator import length_hint

from batchlimit.core.claim import NOW, Admit, Claim, Fetch
from batchlimit.core.lease import Grant
from batchlimit.core.line import Line
from batchlimit.core.reservoir import Reservoir
from batchlimit.core.stock import Stock


def ask(reservoir: Reservoir, claim: Claim, now: float) -> Fetch | None:
    """Do as `join` and then `step`, where that is to ask for one who is alone; None: it is not, and nothing changed."""
    stock = reservoir.stock
    if (
        reservoir._busy is not None
        or reservoir._line
        or reservoir.retired
        or stock.loose
        or stock.coming
        or stock.borrowed
        or length_hint(stock.ready)
        or not 0 < claim.cost <= reservoir.largest
        or NOW < claim.deadline <= now
        or reservoir._pace.until(claim.cost) > now
    ):
        return None
    stock.lay_down()
    reservoir._line.join(claim)
    reservoir._count(now)
    return reservoir._ask(now, claim)


def serve(reservoir: Reservoir, claim: Claim, fetch: Fetch, grant: Grant, now: float, jitter: float) -> bool:
    """Do as `granted`, where that is to serve the claim, and nobody else; False: it is not, and nothing changed."""
    stock, line = reservoir.stock, reservoir._line
    if (
        reservoir._busy is not fetch
        or reservoir._fallback is not None
        or line.first is not claim
        or len(line) > 1
        or grant.quota is not None
        or grant.starts_in > 0.0
        or grant.granted < claim.cost
        or now >= fetch.sent + grant.lease
    ):
        return False
    reservoir._count(now)
    reservoir._busy = reservoir._lost_seq = None
    reservoir._terms.learn(fetch, grant, now)
    reservoir._pace.learn(fetch, grant, reservoir.quota, reservoir._demand.rate, now, jitter)
    stock.credit(fetch, grant, now)
    _spend(stock, line, claim)
    reservoir._used, reservoir._untouched = now, False
    if stock.loose:
        reservoir._aim(now)
    return True


def _spend(stock: Stock, line: Line, claim: Claim) -> None:
    """Give the claim what it asks for, and set the rest free; as everywhere, an interrupt loses some and mints none."""
    stock.saved -= claim.cost
    if claim.tentative:
        stock._pledged += claim.cost
    claim.verdict = Admit(stock.expires, stock.term)
    line.dissolve()
    stock._base -= claim.cost
    stock.admitted += claim.cost
    rest = stock.saved
    stock.saved = 0
    stock.loose += rest
