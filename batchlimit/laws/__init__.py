"""Laws that set a concurrency limit: pure, samples in, a limit out.

Each holds itself to the text that it cites; recorded traces of the originals replay row for row.
"""

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
