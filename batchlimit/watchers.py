"""Watchers of the machine, by which a concurrency limiter backs off before the machine fails."""

from typing import TYPE_CHECKING

from batchlimit.concurrency.watchers import __all__ as __all__

if TYPE_CHECKING:
    from batchlimit.concurrency.watchers import *  # noqa: F403
else:  # imported when somebody first asks for them
    from batchlimit.concurrency.watchers import __dir__ as __dir__
    from batchlimit.concurrency.watchers import __getattr__ as __getattr__
