"""Play scenarios until a rule breaks: python -m tests.simulation --seeds 100000 --jobs 2

A seed that breaks a rule is played again with fewer events, as few as still break it, and told step by step. Exit
status: 0 no rule was broken, 1 one was. `--break NAME` breaks a rule on purpose, to see that this would be noticed.
"""

import sys

from tests.seeds import command
from tests.simulation.breaks import BREAKS
from tests.simulation.shrink import explain, play

if __name__ == "__main__":
    sys.exit(command("tests.simulation", __doc__, play, BREAKS, explain))
