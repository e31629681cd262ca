"""What rate limits of the web know of permits. Concurrency limits import the rest."""

from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchlimit.integrations.permits import ConcurrencyLimit

PERMIT = "batchlimit.permit"
"""Where the scope or the environ of a request has its permit, for `check`, `lost` and `token`."""


def give_back_permit(request: MutableMapping[str, Any]) -> None:
    """Give back the permit of a request that rules refuse: its answer tells nothing about the load."""
    if (permit := request.get(PERMIT)) is not None:
        from batchlimit.admission.permit import give_back

        give_back(permit)


def behind(concurrency: "ConcurrencyLimit | None", package: str, app: Any) -> Any:
    """Return an application behind the ConcurrencyLimitMiddleware of a package; None: there is no such limit."""
    if concurrency is None:
        return None
    from batchlimit.integrations.permits import options_of

    return import_module(f"{package}.concurrency").ConcurrencyLimitMiddleware(app, **options_of(concurrency))
