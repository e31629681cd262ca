"""Change the library in small ways, one at a time, and see whether its tests notice.

    python -m tests.mutate --part bucket --count 50

A change is of a comparison, a sum, an `and` or `or`, a constant, a `not`, a statement that is left out, or a return
that comes at once. First all tests of the part run once, and it is written down which lines each passes through. Then
each change is made in a process of its own, where those tests run that pass through the changed statement, the quickest
first, until one fails. What none of them notices survives, and is printed. `--count` takes so many of all changes,
drawn by `--seed`: the same ones each time. tests/mutate/equivalents.txt lists changes that change nothing, with an
argument; they do not count.
"""

import argparse
import multiprocessing
import sys

from tests.mutate.judge import judged
from tests.mutate.sampled import FOR_ALL, PARTS, drawn


def main() -> int:
    """Make the changes that were asked for; exit status 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--part", choices=PARTS, required=True, help="a folder of batchlimit/, or a module")
    parser.add_argument("--module", default="", help="only modules with this in their path")
    parser.add_argument("--count", type=int, help="changes to make (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes at a time")
    parser.add_argument("tests", nargs="*", help="tests to run (default: those of the part)")
    chosen = parser.parse_args()
    mutations = drawn(chosen.part, chosen.count, chosen.seed, chosen.module)
    survivors = []
    number = 0
    for number, (mutation, survives) in enumerate(
        judged(mutations, chosen.tests or PARTS[chosen.part] + FOR_ALL, chosen.jobs), 1
    ):
        survivors += [mutation] if survives else []
        print(f"{number}/{len(mutations)} {'SURVIVES' if survives else 'noticed '} {mutation}", flush=True)
    if number < len(mutations):
        print("the tests fail without any change")
        return 2
    found = number - len(survivors)
    print(f"{chosen.part}: {found} of {number} were noticed, {found / max(1, number):.1%}; survivors:")
    print("\n".join(map(str, sorted(survivors, key=str))))
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
