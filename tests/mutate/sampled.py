"""The parts of the library, the tests of their rules, and a sample of the changes of a part."""

import random
from pathlib import Path

from tests.mutate.changes import ROOT, Mutation, sites

_MODEL = "tests/model/test_model.py::test_no_history_breaks_a_rule"
_ENFORCED = ("underway", "enforcement", "everywhere", "decisions", "asgi", "rule_file")
_CALLS = ("several", "reserve", "pauses", "close", "overrides", "parity", "rule_file", "limiter", "events")
_LIFE = ["tests/life/test_dormant_keys.py", "tests/life/test_max_keys.py"]
_FILES = ("integrations/test_rule_file", "apis/test_rule_file", "cli/test_files")
_WARNING = "tests/apis/test_outage.py::test_a_warning_points_at_the_line_that_makes_the_limiter"
_SPENDS_AND_OPTIONS = ["tests/apis/test_several.py", "tests/apis/test_arguments.py"]
PARTS = {
    "bucket": ["tests/bucket", "tests/lua", "tests/shared/test_simulation.py", "tests/simulation", _MODEL],
    "reservoir": ["tests/reservoir", "tests/keyspace", "tests/simulation", *_SPENDS_AND_OPTIONS, _MODEL],
    "keyspace": ["tests/keyspace", *(f"tests/apis/test_{each}.py" for each in _CALLS), *_LIFE, _WARNING, _MODEL],
    "bucket/slot_table.py": ["tests/bucket", "tests/lua", "tests/shared", "tests/stores/test_slots.py"],
    "shared": ["tests/shared", "tests/stores/test_slots.py"],
    "quota/overrides": ["tests/quota/overrides", "tests/reservoir/test_overrides.py", "tests/apis/test_overrides.py"],
    "rules": ["tests/rules", *(f"tests/{each}.py" for each in _FILES)],
    "concurrency/laws": ["tests/concurrency/laws"],
    "integrations/enforcement": [f"tests/integrations/test_{each}.py" for each in _ENFORCED],
}
"""By folder or module of the library: where the tests of its rules are."""
FOR_ALL = ["tests/test_docstrings.py::test_a_default_is_the_number_that_its_description_says"]
"""Tests of every part."""


def equivalents() -> set[str]:
    """The names of changes that change nothing; each is followed by ` # ` and why."""
    lines = (Path(__file__).parent / "equivalents.txt").read_text().splitlines()
    return {line.split(" # ")[0] for line in lines if line and not line.startswith("#")}


def drawn(part: str, count: int | None, seed: int, module: str = "") -> list[Mutation]:
    """So many of the changes of a part, but not those that change nothing; of them, those of a `module`."""
    place, known = ROOT / "batchlimit" / part, equivalents()
    paths = sorted(path.relative_to(ROOT) for path in (place.rglob("*.py") if place.is_dir() else [place]))
    places = [each for path in paths for each in sites(path)]
    if count is not None:
        places = random.Random(seed).sample(places, min(count, len(places)))
    made = [each.mutation() for each in places if module in str(each.path)]
    return [each for each in made if each is not None and each.name not in known]
