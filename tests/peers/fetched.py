"""The suite of a peer, as it is published: its sdist in a temporary directory, and a run of it over a face of ours."""

import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

FACES = Path(__file__).parent / "faces"


@dataclass(frozen=True)
class Run:
    """One run of pytest within an sdist.

    Args:
        arguments: of pytest: files, marks and plugins.
        environment: further variables.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def fetch(name: str, version: str, needs: Sequence[str], directory: Path, url: str = "") -> Path:
    """Unpack the sdist of a package, and install what its suite needs beside it; return where it is.

    Where the tests are those of an archive, the package is what is installed here, and not what lies beside them.
    """
    if url:
        _load(url, directory / f"{name}.tar.gz")
    else:
        _pip("download", "--no-binary", name, "--no-deps", "--dest", str(directory), f"{name}=={version}")
    if needs:
        _pip("install", "--no-deps", "--target", str(directory / "needs"), *needs)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
        unpacked = directory / packed.getnames()[0].split("/")[0]
    if url:
        shutil.rmtree(unpacked / name)
    return unpacked


def _load(url: str, path: Path) -> None:
    """Load an archive, or take it from the folder PEERS_ARCHIVES, where it has the same name."""
    kept = Path(os.environ.get("PEERS_ARCHIVES", "")) / path.name
    if kept.is_file():
        shutil.copy(kept, path)
        return
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            path.write_bytes(reply.read())
    except OSError as error:
        pytest.skip(f"{url} cannot be reached: {error}")


def outcomes(unpacked: Path, run: Run, redis_url: str) -> dict[str, str]:
    """Run the suite; return by test: passed, failed, or skipped."""
    report = unpacked / "report.xml"
    path = os.pathsep.join(map(str, [FACES, unpacked, unpacked.parent / "needs"]))
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": path,
        "PEERS_REDIS": redis_url,
        **run.environment,
    }
    options = ["-c", os.devnull, "--rootdir", str(unpacked), "-W", "ignore", "-q", f"--junit-xml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *run.arguments]
    done = subprocess.run(command, check=False, cwd=unpacked, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {_name(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _name(case: ElementTree.Element) -> str:
    where = case.attrib["classname"].removeprefix("tests.")
    return f"{where}.{case.attrib['name']}"


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"
