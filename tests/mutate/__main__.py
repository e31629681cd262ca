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
import random
import sys
from pathlib import Path

from tests.mutate.changes import ROOT, Mutation, sites
from tests.mutate.judge import judged

_MODEL = "tests/model/test_model.py::test_no_history_breaks_a_rule"
_ENFORCED = ("plan", "underway", "enforcement", "routes", "replacing", "exempt", "decisions", "asgi", "rule_file")
_APIS = [f"tests/apis/test_{each}.py" for each in ("spends", "several", "pauses", "close", "overrides", "parity")]
PARTS = {
    "bucket": ["tests/bucket", "tests/lua", "tests/shared/test_simulation.py", "tests/simulation", _MODEL],
    "reservoir": ["tests/reservoir", "tests/keyspace", "tests/simulation", "tests/apis/test_spends.py", _MODEL],
    "keyspace": ["tests/keyspace", *_APIS, "tests/life/test_dormant_keys.py", _MODEL],
    "bucket/slot_table.py": ["tests/bucket", "tests/lua", "tests/shared", "tests/stores/test_slots.py"],
    "shared": ["tests/shared", "tests/stores/test_slots.py"],
    "quota/overrides": ["tests/quota/overrides", "tests/reservoir/test_overrides.py", "tests/apis/test_overrides.py"],
    "integrations/enforcement": [f"tests/integrations/test_{each}.py" for each in _ENFORCED],
}
"""By folder or module of the library: where the tests of its rules are."""


def equivalents() -> set[str]:
    """The names of changes that change nothing; each is followed by ` # ` and why."""
    lines = (Path(__file__).parent / "equivalents.txt").read_text().splitlines()
    return {line.split(" # ")[0] for line in lines if line and not line.startswith("#")}


def drawn(part: str, count: int | None, seed: int) -> list[Mutation]:
    """So many of the changes of a part, but not those that change nothing."""
    place, known = ROOT / "batchlimit" / part, equivalents()
    paths = sorted(path.relative_to(ROOT) for path in (place.rglob("*.py") if place.is_dir() else [place]))
    places = [each for path in paths for each in sites(path)]
    if count is not None:
        places = random.Random(seed).sample(places, min(count, len(places)))
    made = [each.mutation() for each in places]
    return [each for each in made if each is not None and each.name not in known]


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
    mutations = [each for each in drawn(chosen.part, chosen.count, chosen.seed) if chosen.module in str(each.path)]
    survivors = []
    number = 0
    for number, (mutation, survives) in enumerate(
        judged(mutations, chosen.tests or PARTS[chosen.part], chosen.jobs), 1
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
