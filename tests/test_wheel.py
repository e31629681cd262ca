"""What is installed works without the checkout: the wheel and the sdist carry the Lua."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).parents[1]
_LUA = sorted(path.name for path in (_CHECKOUT / "lua").glob("*.lua"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=_CHECKOUT, check=True, capture_output=True
    )
    return folder


def test_the_sdist_carries_the_lua_and_what_builds_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"lua/{name}" for name in _LUA} | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert {"CHANGELOG.md", "CONTRIBUTING.md", ".github/workflows/ci.yml", "scripts/test", "tests/conftest.py"} <= names


def test_the_wheel_works_away_from_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {f"batchlimit/lua/{name}" for name in _LUA} | {"batchlimit/py.typed"} <= set(archive.namelist())
        archive.extractall(tmp_path)
    code = """
import sys; sys.path.insert(0, sys.argv[1])
import batchlimit
assert batchlimit.__file__.startswith(sys.argv[1]), batchlimit.__file__
with batchlimit.RateLimiter.from_url("embedded://", "1/h burst 3", connect_timeout=30.0, deadline=30.0) as limiter:
    print([limiter.try_acquire("k", cost) for cost in (3, 1)])
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[True, False]"
