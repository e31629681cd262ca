"""Rate limits for Django: middleware for WSGI and ASGI, a decorator for views, and a throttle for REST framework."""

from batchlimit.base.lazy import needed

with needed(__name__, "django", "Django"):
    import django  # noqa: F401  said here what is missing, once for all modules of this package

from batchlimit.integrations.django.middleware import RateLimitMiddleware, limited, operation_names
from batchlimit.integrations.enforcement import decisions

__all__ = ["RateLimitMiddleware", "decisions", "limited", "operation_names"]
