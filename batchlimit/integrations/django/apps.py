"""The Django application, which validates the settings with `manage.py check`."""

from django.apps import AppConfig
from django.core.checks import register

from batchlimit.integrations.django.checks import check_limits


class LimitsConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Name `batchlimit.integrations.django` in INSTALLED_APPS."""

    name = "batchlimit.integrations.django"
    label = "batchlimit"
    verbose_name = "Rate limits"

    def ready(self) -> None:
        """Register the system check."""
        register(check_limits)
