"""What a refused request of Django is answered."""

from typing import Any

from django.http import HttpResponse

from batchlimit.integrations.django.configuration import configuration
from batchlimit.integrations.django.fronts import awaitable, blocking
from batchlimit.integrations.django.hold import hold_of
from batchlimit.integrations.enforcement import Refusal
from batchlimit.integrations.held_permit import spared


def answer(request: Any, refusal: Refusal) -> Any:
    """Return the response, in a thread; the middleware adds the fields.

    It is that of ON_REJECTED, or problem details where that returns None or raises.
    """
    spare(request)
    if (own := configuration().on_rejected) is not None:
        try:
            return blocking(own)(request, refusal) or _problem(refusal)
        except Exception as error:  # noqa: BLE001  told in the log
            _failed(request, refusal, error)
    return _problem(refusal)


async def answer_async(request: Any, refusal: Refusal) -> Any:
    """Return the response, in a task; the middleware adds the fields.

    It is that of ON_REJECTED, or problem details where that returns None or raises.
    """
    spare(request)
    if (own := configuration().on_rejected) is not None:
        try:
            return await awaitable(own)(request, refusal) or _problem(refusal)
        except Exception as error:  # noqa: BLE001  told in the log
            _failed(request, refusal, error)
    return _problem(refusal)


def spare(request: Any) -> None:
    """Give back the permit of a refused request: its answer tells nothing about the load."""
    spared(getattr(request, "scope", None) or request.META)


def _problem(refusal: Refusal) -> Any:
    return HttpResponse(refusal.body, status=refusal.status, content_type="application/problem+json")


def _failed(request: Any, refusal: Refusal, error: Exception) -> None:
    if (hold := hold_of(request)) is not None:
        hold.unanswered(refusal, error)
