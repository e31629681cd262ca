"""Rate limits for Flask: an extension that holds rules against every request, and a decorator for views.

`limits` is the extension, `rejected` the exceptions that it raises. Flask's error handlers answer them.
"""

from batchlimit.base.lazy import needed

with needed(__name__, "flask", "Flask"):
    import flask  # noqa: F401  said here what is missing, once for all modules of this package

from batchlimit.integrations.enforcement import decisions
from batchlimit.integrations.extension import Rejected
from batchlimit.integrations.flask.limits import Limits

__all__ = ["Limits", "Rejected", "decisions"]
