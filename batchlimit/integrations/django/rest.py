"""A throttle for Django REST framework, which asks for one rule by its key."""

import math
from typing import Any

from rest_framework.exceptions import APIException, PermissionDenied
from rest_framework.throttling import BaseThrottle

from batchlimit.integrations.address import identity_of
from batchlimit.integrations.django.configuration import asked, blocking, configuration
from batchlimit.integrations.django.middleware import MISSING, spare
from batchlimit.integrations.enforcement import HOLD_NAME, unprotected
from batchlimit.integrations.enforcement.plan import limit_for_route
from batchlimit.rules.rule import ChargeSetting, RuleCost


class Unavailable(APIException):  # type: ignore[misc]  # REST framework has no types
    """A rule cannot be asked."""

    status_code = 503
    default_detail = "A limit of this service cannot be asked now."
    default_code = "service_unavailable"


_ERRORS: dict[int, type[Exception]] = {503: Unavailable, 403: PermissionDenied}


def throttle(key: str, *, cost: RuleCost | None = None, charge: ChargeSetting = None) -> type[BaseThrottle]:
    """Return a class for `throttle_classes`: requests are charged to the rule with this key.

    `IDENTIFY` is asked with the request of REST framework, so `request.user` is whom it has authenticated.

    Args:
        key, cost, charge: what is asked for, as of RouteLimit of `batchlimit.integrations.enforcement`.

    Returns:
        The class. REST framework answers a refusal 429 with `Retry-After`; the middleware adds the other fields.
    Raises:
        RulesError: an argument cannot work.

    """
    limit = limit_for_route(key, cost, charge, "throttle_classes = [throttle(...)]")
    asked.append(limit)

    class Throttle(BaseThrottle):  # type: ignore[misc]
        """Asks for one rule."""

        _retry_after: float | None = None

        def allow_request(self, request: Any, view: Any) -> bool:
            """Charge the request; return whether it goes on."""
            if (hold := getattr(request, HOLD_NAME, None)) is None:
                unprotected(key, MISSING)
                raise Unavailable
            identify = configuration()["IDENTIFY"]
            told = identity_of({}, None if identify is None else blocking(identify), request)
            refusal = blocking(hold.front.enforcer.ask)(limit, hold.outcome, told, view.kwargs)
            if refusal is None:
                return True
            spare(getattr(request, "_request", request))
            if refusal.status in _ERRORS:
                raise _ERRORS[refusal.status]
            self._retry_after = refusal.retry_after
            return False

        def wait(self) -> float | None:
            """Return after how many seconds it may come again; None: never, or nothing is known."""
            wait = self._retry_after
            return wait if wait is not None and math.isfinite(wait) else None

    return Throttle
