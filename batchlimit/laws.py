"""The laws that set a concurrency limit: Knee, the default, and the laws of others."""

from typing import TYPE_CHECKING

from batchlimit.concurrency.laws import __all__ as __all__

if TYPE_CHECKING:
    from batchlimit.concurrency.laws import *  # noqa: F403
else:  # imported when somebody first asks for them
    from batchlimit.concurrency.laws import __dir__ as __dir__
    from batchlimit.concurrency.laws import __getattr__ as __getattr__
