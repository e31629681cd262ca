"""How many files and functions a call passes, which is how many a newcomer reads who follows it."""

from collections.abc import Callable

import pytest

from benchmarks import path
from tests.servers import Server


@pytest.mark.parametrize(
    ("name", "api"), [(path.THREADS, path.threads), (path.TASKS, path.tasks), (path.WEB, path.web)]
)
def test_a_call_passes_few_files_and_functions(
    name: str, api: Callable[[str], dict[str, path.Passed]], valkey: Server
) -> None:
    figures = list(path.figures({name: api(valkey.url)}))
    assert sum(bool(each.verdict) for each in figures) == (4 if name == path.WEB else 10)
    assert [str(each) for each in figures if each.verdict == "short"] == []
