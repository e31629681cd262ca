"""The last release and this one share a server, in both orders: they share its buckets, or say by name why not."""

import json
import pickle
import re
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from batchlimit.quota.overrides.override import Override
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import bucket_name
from tests.depth import only_deep
from tests.releases.member import TAKEN
from tests.servers import Servers

ROOT = Path(__file__).parents[2]
RATE, BURST = 100, 10


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release, as it was installed."""
    (wheel,) = Path(__file__).parent.glob("*.whl")
    folder = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_last_release_obeys_a_hold_that_covers_a_quota(release: Path) -> None:
    hold = Override("ann", Quota(0.0), until=9.5, covered=Override("ann", Quota(5.0)))
    read = "from batchlimit.overrides.override import Override; print(Override.decode('ann', sys.argv[1]).said)"
    line = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(release)!r}); {read}", hold.encode()]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == "0/s\n"


def test_a_quota_that_the_last_release_pickled_knows_its_largest_cost(release: Path) -> None:
    write = "from batchlimit import Quota; sys.stdout.buffer.write(pickle.dumps(Quota.parse('5/minute; 100/day')))"
    line = [sys.executable, "-c", f"import pickle, sys; sys.path.insert(0, {str(release)!r}); {write}"]
    quota = pickle.loads(subprocess.run(line, capture_output=True, check=True).stdout)
    assert (str(quota), quota.largest_cost) == ("5/m; 100/d", 5)


_OTHER = "FORMAT: .*this {} is of format {}, and this release reads {} "
_OLD = "DAMAGED: .*this hash is no {}"  # releases from before there were formats


class Fleet:
    """Processes of one release."""

    def __init__(self, path: Path, url: str, prefix: str, processes: int, *later: str) -> None:
        member = str(Path(__file__).with_name("member.py"))
        command = [sys.executable, member, str(path), url, prefix, str(processes), *later]
        self._processes = processes
        self._run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = [each for line in self._lines() for each in line["first"]]

    def _lines(self) -> list[dict[str, Any]]:
        assert self._run.stdout is not None
        return [json.loads(self._run.stdout.readline()) for _ in range(self._processes)]

    def go_on(self) -> None:
        assert self._run.stdin is not None
        self._run.stdin.close()

    def end(self) -> list[str]:
        """Wait for the end; return what went wrong."""
        lines = self._lines()
        self.had_tokens = max(line["at"] for line in lines)
        return [each for line in lines for each in line["errors"]]

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._run.wait()
        assert self._run.stdout is not None
        self._run.stdout.close()


@pytest.mark.parametrize("first", ["release", "main"])
def test_main_reads_what_the_last_release_wrote_which_says_by_name_that_it_cannot_read_a_small_bucket(
    release: Path, first: str, servers: Servers, prefix: str
) -> None:
    server = servers.get("valkey")
    paths = [release, ROOT] if first == "release" else [ROOT, release]
    with ExitStack() as stack, server.client() as client:
        fleets = [stack.enter_context(Fleet(paths[0], server.url, prefix, 3))]
        assert client.persist(bucket_name(prefix, "ann"))  # else it ends after 5 s, which a busy machine needs to start
        fleets.append(stack.enter_context(Fleet(paths[1], server.url, prefix, 3)))
        began = time.monotonic()
        main, other = fleets[paths.index(ROOT)], fleets[paths.index(release)]
        assert (main.first, len(other.first)) == ([], 3 if first == "main" else 0)
        for each in fleets:
            each.go_on()
        refused = other.first + other.end()
        assert main.end() == []
        passed = main.had_tokens - began
    assert all(re.match(_OLD.format("bucket"), error) for error in refused), refused
    assert BURST + RATE * passed >= 3 * TAKEN, "no token was minted"


@only_deep
@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("later", "main", [_OTHER.format("bucket", 2, 1), _OTHER.format("limit", 2, 1)]),
        ("main", "later", [_OTHER.format("bucket", 1, 2), _OTHER.format("limit", 1, 2)]),
        ("later", "release", [_OLD.format("bucket"), _OLD.format("limit")]),
        ("release", "later", [_OTHER.format("bucket", 1, 2), _OTHER.format("limit", 1, 2)]),
    ],
)
def test_a_release_with_another_format_is_refused_by_name_and_the_first_goes_on(
    release: Path, servers: Servers, prefix: str, first: str, second: str, said: list[str]
) -> None:
    url = servers.get("valkey").url

    def fleet(name: str) -> Fleet:
        return Fleet(release if name == "release" else ROOT, url, prefix, 1, *["later"] * (name == "later"))

    with fleet(first) as one, fleet(second) as other:
        assert one.first == []
        assert len(other.first) == len(said)
        assert all(re.match(told, error) for told, error in zip(said, other.first, strict=True)), other.first
        one.go_on()
        assert one.end() == []
