"""Play stories of fleets that share a limit until a rule breaks: python -m tests.shared --seeds 20000 --jobs 2

Exit status: 0 no rule was broken, 1 one was. `--break NAME` breaks a rule on purpose, to see that this is noticed;
`--break all` does so with each of them.
"""

import sys

from tests.seeds import command
from tests.shared.breaks import BREAKS, played

if __name__ == "__main__":
    sys.exit(command("tests.shared", __doc__, played, BREAKS))
