"""`batchlimit exporter` on a real server: what the store knows of the fleet, and never of a key that is not watched."""

import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchlimit.admin import Admin
from batchlimit.cli.exporter import FleetCollector, WatchedBuckets
from batchlimit.cli.top.board import BucketSample
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from tests.cli.conftest import Run
from tests.cli.top.test_top import use


def told(page: str) -> dict[tuple[str, ...], float]:
    """The values of a page by name and labels."""
    return {
        (sample.name.removeprefix("batchlimit_fleet_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_the_exporter_tells_of_the_keys_and_patterns_that_it_watches(run: Run, valkey_store: RedisStore) -> None:
    use(valkey_store, "search:ann", 300, refused=7)
    use(valkey_store, "search:bob", 100)
    use(valkey_store, "secret", 50)
    done = run("exporter", "--once", "-w", "search:ann", "-w", "search:*", "-w", "nobody")
    assert done.exit_code == 0
    seen = told(done.stdout)
    assert seen["up",] == 1
    assert seen["used_total", "search:ann"] == 300
    assert seen["used_total", "search:*"] == 400
    assert seen["refused_total", "search:*"] == 7
    assert seen["shadow_refused_total", "search:*"] == 14
    assert (seen["buckets", "search:*"], seen["buckets", "nobody"]) == (2, 0)
    assert [seen["level", name] for name in ("search:ann", "search:*")] == pytest.approx([0.7, 0.7], abs=0.001)
    assert (seen["level", "nobody"], seen["outstanding", "search:*"]) == (1, 0)
    assert "secret" not in done.stdout


def test_the_exporter_tells_of_overrides_by_what_they_say(run: Run, valkey_store: RedisStore) -> None:
    run("set", "search:*", "20/s")
    run("hold", "export:*", "1h")
    run("open", "login", "--until", "1h")
    seen = told(run("exporter", "--once").stdout)
    assert {kind: seen["overrides", kind] for kind in ("quota", "hold", "open")} == {"quota": 1, "hold": 1, "open": 1}
    assert seen["rules_revision",] == Admin(valkey_store).overrides().revision


def test_while_the_store_is_away_it_says_so() -> None:
    with Admin.from_url("redis://localhost:1/0") as admin:
        (up,) = FleetCollector(admin, "batchlimit", ["ann"], 10.0).collect()
    assert (up.name, up.samples[0].value) == ("batchlimit_fleet_up", 0)


def test_what_was_used_is_added_up_though_buckets_end_and_begin_anew() -> None:
    def seen(used: int, epoch: float = 1.0, key: str = "ann") -> BucketSample:
        return BucketSample(key, 0.0, Quota(1.0, 1), 1.0, 0, 1, epoch, used, used // 10)

    watched = WatchedBuckets()
    for look, total in [
        ([seen(100)], 100),
        ([seen(130)], 130),
        ([], 130),
        ([seen(20, 2.0)], 150),
        ([seen(20, 2.0), seen(5, 3.0, "bob")], 155),
        ([seen(10, 2.0), seen(5, 3.0, "bob")], 155),
    ]:
        watched.learn(look)
        assert watched.counts["used"] == total


def test_a_scrape_is_answered_over_http(environment: dict[str, str], valkey_store: RedisStore) -> None:
    use(valkey_store, "ann", 300)
    command = [sys.executable, "-m", "batchlimit", "exporter", "--port", "0", "-w", "ann"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            for _ in range(2):
                with urllib.request.urlopen(found[0], timeout=60) as reply:
                    assert told(reply.read().decode())["used_total", "ann"] == 300
        finally:
            process.kill()


def test_a_port_that_is_taken_is_told_in_a_line(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("exporter", "--port", str(port))
    assert (done.exit_code, f"cannot listen at 127.0.0.1:{port}" in done.stderr) == (2, True)


def test_an_address_of_ipv6_stands_in_brackets(run: Run) -> None:
    done = run("exporter", "--host", "2001:db8::1", "--port", "9000")  # of nobody
    assert (done.exit_code, "cannot listen at [2001:db8::1]:9000" in done.stderr) == (2, True)


def test_the_page_has_every_metric(run: Run) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`batchlimit_fleet_(\w+)`", page))
    assert named == {name for name, *_ in told(run("exporter", "--once", "-w", "ann").stdout)}
