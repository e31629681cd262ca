"""Laws that set a concurrency limit. They are pure: samples go in, a limit comes out.

Each law follows the text that it cites. Recorded traces of the originals replay row for row.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.concurrency.laws.gradient import Gradient, Gradient2, square_root
    from batchlimit.concurrency.laws.knee.knee import Knee
    from batchlimit.concurrency.laws.periodic import Periodic, Tumbling, p95
    from batchlimit.concurrency.laws.simple import AIMD, Fixed, Gitaly, Settable, Watched
    from batchlimit.concurrency.laws.vegas import Vegas, log10
    from batchlimit.concurrency.laws.windowed import AverageWindow, PercentileWindow, Summary, Window, Windowed
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.concurrency.laws.simple": "AIMD Fixed Gitaly Settable Watched",
            "batchlimit.concurrency.laws.gradient": "Gradient Gradient2 square_root",
            "batchlimit.concurrency.laws.knee.knee": "Knee",
            "batchlimit.concurrency.laws.periodic": "Periodic Tumbling p95",
            "batchlimit.concurrency.laws.vegas": "Vegas log10",
            "batchlimit.concurrency.laws.windowed": "AverageWindow PercentileWindow Summary Window Windowed",
        },
    )

__all__ = [
    "AIMD", "AverageWindow", "Fixed", "Gitaly", "Gradient", "Gradient2", "Knee", "PercentileWindow", "Periodic",
    "Settable", "Summary", "Tumbling", "Vegas", "Watched", "Window", "Windowed", "log10", "p95", "square_root",
]  # fmt: skip
