"""The Django application, which validates the settings with `manage.py check`."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver
from django.utils.module_loading import import_string

from batchlimit.integrations.django.configuration import asked, configuration
from batchlimit.integrations.django.middleware import RateLimitMiddleware
from batchlimit.integrations.enforcement.plan import Plans
from batchlimit.rules import RulesError
from batchlimit.rules.file import rules_of

_MIDDLEWARE = "batchlimit.integrations.django.RateLimitMiddleware"


def check_limits(**_: Any) -> list[CheckMessage]:
    """Return what cannot work.

    Returns:
        Errors: E001, the settings; E002, the middleware is missing; E003, a view asks for a key that no rule has.
    """
    try:
        found = configuration()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="batchlimit.E001")]
    errors: list[CheckMessage] = []
    if not any(_is_ours(name) for name in settings.MIDDLEWARE):
        hint = f"Add {_MIDDLEWARE!r} to MIDDLEWARE, below what tells who the user is."
        errors.append(Error("Nothing is limited: the middleware is missing.", hint=hint, id="batchlimit.E002"))
    if getattr(settings, "ROOT_URLCONF", None):
        get_resolver().url_patterns  # noqa: B018  it imports the modules of the views
    rules = Plans(rules_of(found["RULES"]))
    for limit in asked:
        try:
            rules.find(limit)
        except RulesError as error:
            errors.append(Error(f"A view asks for a limit: {error}", id="batchlimit.E003"))
    return errors


def _is_ours(name: str) -> bool:
    try:
        found = import_string(name)
    except ImportError:  # Django tells of it
        return False
    return isinstance(found, type) and issubclass(found, RateLimitMiddleware)


class LimitsConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Name `batchlimit.integrations.django` in INSTALLED_APPS."""

    name = "batchlimit.integrations.django"
    label = "batchlimit"
    verbose_name = "Rate limits"

    def ready(self) -> None:
        """Register the system check."""
        register(check_limits)
