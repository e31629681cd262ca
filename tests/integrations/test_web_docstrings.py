"""The examples in the docstrings of integrations run."""

from importlib import import_module
from pathlib import Path

import pytest

from batchlimit import integrations
from tests.examples import run_examples

ROOT = Path(integrations.__path__[0])
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parents[1]).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    assert run_examples(import_module(name)).failed == 0
