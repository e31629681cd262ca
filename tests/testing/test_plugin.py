"""The plugin costs nothing where it is not used, and its fixtures are there without an import."""

from pathlib import Path

import pytest

from tests.testing.suites import passed

_CONFTEST = """
import sys

def pytest_sessionfinish():
    print("imported", *sorted(name for name in sys.modules if name.startswith("batchlimit")))
"""


def run_pytest(tmp_path: Path, test: str, *arguments: str) -> str:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_of_a_user.py").write_text(test)
    return passed(tmp_path, "-q", "-s", *arguments, str(tmp_path))


def test_no_module_of_batchlimit_is_imported_before_a_fixture_is_used(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "def test_nothing() -> None: pass")
    (line,) = [line for line in said.splitlines() if "imported" in line]
    assert line.split("imported")[1].split() == [
        "batchlimit",  # the packages that the plugin lies in, whose names are imported when they are asked for
        "batchlimit.base",
        "batchlimit.base.lazy",
        "batchlimit.testing",
        "batchlimit.testing.plugin",
    ]


def test_a_fixture_is_there_without_an_import(tmp_path: Path) -> None:
    run_pytest(
        tmp_path,
        """
def test_a_limit(frozen_limits):
    from batchlimit import RateLimiter
    limiter = RateLimiter.from_url("redis://192.0.2.1:1", "1/hour")
    assert [limiter.try_acquire("ann") for _ in range(2)] == [True, False]
""",
    )


def test_each_worker_of_xdist_has_prefixes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each worker would import all plugins of this machine
    run_pytest(
        tmp_path,
        """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_a_prefix(limit_prefix, worker_id, number):
    assert limit_prefix.startswith(f"test-{worker_id}-")
    assert worker_id.startswith("gw")
""",
        *("-p", "xdist", "-n", "2"),
        *("-p", "batchlimit.testing.plugin"),
    )
