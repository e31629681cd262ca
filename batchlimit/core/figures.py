"""What one reservoir did and has, for the statistics of its limiter."""

from typing import NamedTuple


class Figures(NamedTuple):
    """Counts of tokens, but for `calls` of the store, `losses` of a bucket's state, and `waiting` callers.

    What happened comes first: it is remembered when the reservoir goes. What is there now goes with it.
    """

    admitted: int = 0
    refused: int = 0
    calls: int = 0
    fallback: int = 0
    losses: int = 0
    held: int = 0
    waiting: int = 0
    owed: int = 0
