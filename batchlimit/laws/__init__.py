"""Laws that set a concurrency limit: pure, samples in, a limit out.

Each holds itself to the text that it cites; recorded traces of the originals replay row for row.
"""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.laws.aimd import AIMD
    from batchlimit.laws.fixed import Fixed, Settable
    from batchlimit.laws.gitaly import Gitaly
    from batchlimit.laws.gradient import Gradient
    from batchlimit.laws.gradient2 import Gradient2
    from batchlimit.laws.growth import log10, square_root
    from batchlimit.laws.knee import Knee
    from batchlimit.laws.periodic import Periodic, p95
    from batchlimit.laws.vegas import Vegas
    from batchlimit.laws.watched import Watched
    from batchlimit.laws.window import AverageWindow, PercentileWindow, Summary, Window
    from batchlimit.laws.windowed import Windowed
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.laws.aimd": "AIMD",
            "batchlimit.laws.fixed": "Fixed Settable",
            "batchlimit.laws.gitaly": "Gitaly",
            "batchlimit.laws.gradient": "Gradient",
            "batchlimit.laws.gradient2": "Gradient2",
            "batchlimit.laws.growth": "log10 square_root",
            "batchlimit.laws.knee": "Knee",
            "batchlimit.laws.periodic": "Periodic p95",
            "batchlimit.laws.vegas": "Vegas",
            "batchlimit.laws.watched": "Watched",
            "batchlimit.laws.window": "AverageWindow PercentileWindow Summary Window",
            "batchlimit.laws.windowed": "Windowed",
        },
    )

__all__ = [
    "AIMD",
    "AverageWindow",
    "Fixed",
    "Gitaly",
    "Gradient",
    "Gradient2",
    "Knee",
    "PercentileWindow",
    "Periodic",
    "Settable",
    "Summary",
    "Vegas",
    "Watched",
    "Window",
    "Windowed",
    "log10",
    "p95",
    "square_root",
]
