"""What Prometheus sees of an application with several workers: exactly what its clients counted."""

import http.client
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from batchlimit import ConcurrencyLimiter, RateLimiter
from batchlimit.integrations.front import Front
from batchlimit.laws import Fixed
from batchlimit.rules import Rule, Rules
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.telemetry.prometheus import export
from benchmarks.prometheus import Prometheus, prometheus
from tests.depth import depth
from tests.integrations.worker_commands import DEADLINE, GUNICORN, Crew, working
from tests.ports import free_port
from tests.programs import program
from tests.servers import Server
from tests.sync.stage import until

Totals = dict[tuple[str, ...], float]


def samples(page: bytes) -> Totals:
    """The samples of a page by name and label values, without the name of the limiter."""
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name != "limiter")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_one_process_is_read_when_it_is_scraped() -> None:
    registry = CollectorRegistry()
    with RateLimiter.from_url("memory://", "2/hour") as limiter, ConcurrencyLimiter() as calls:
        exporter = export(limiter, calls, name="api", registry=registry)
        assert [limiter.try_acquire("ann") for _ in range(3)] == [True, True, False]
        calls.acquire().success()
        seen = samples(generate_latest(registry))
        assert sum(value for key, value in seen.items() if key[:3] == ("batchlimit_tokens_total", "*", "acquired")) == 2
        assert sum(value for key, value in seen.items() if key[:3] == ("batchlimit_tokens_total", "*", "refused")) == 1
        assert seen["batchlimit_store_available",] == 1
        assert sum(value for (name, *labels), value in seen.items() if "succeeded" in labels) == 1
        exporter.close()
        exporter.close()
        assert generate_latest(registry) == b""


def test_an_exporter_that_a_registry_was_told_to_forget_leaves_the_others_their_page() -> None:
    registry = CollectorRegistry()
    with RateLimiter.from_url("memory://", "2/hour") as one, RateLimiter.from_url("memory://", "2/hour") as two:
        first, _second = export(one, name="one", registry=registry), export(two, name="two", registry=registry)
        registry.unregister(first)
        page = generate_latest(registry).decode()
    assert 'limiter="two"' in page
    assert 'limiter="one"' not in page


def test_a_page_has_each_metric_once_however_many_exporters_there_are() -> None:
    registry = CollectorRegistry()
    with RateLimiter.from_url("memory://", "2/hour") as one, RateLimiter.from_url("memory://", "2/hour") as other:
        exporters = [export(each, name=name, registry=registry) for name, each in (("one", one), ("other", other))]
        for left in (2, 1):
            page = generate_latest(registry).decode()
            assert page.count("# TYPE batchlimit_keys ") == 1
            assert page.count("batchlimit_keys{") == left
            exporters.pop(0).close()
        assert generate_latest(registry) == b""


def test_sources_of_one_name_are_added_up_whichever_exporters_they_have() -> None:
    registry = CollectorRegistry()
    with RateLimiter.from_url("memory://", "2/hour") as one, RateLimiter.from_url("memory://", "2/hour") as other:
        for each in (one, other, other):
            export(each, registry=registry)
            each.try_acquire("ann")
        assert b'batchlimit_keys{limiter=""} 2.0' in generate_latest(registry)


def test_promtool_has_nothing_to_say_against_any_metric() -> None:
    registry = CollectorRegistry()
    with (
        RateLimiter.from_url("memory://", "1000/s") as limiter,
        ConcurrencyLimiter(Fixed(1)) as calls,
        SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as shared,
    ):
        export(limiter, calls, shared, Front("memory://", [Rule("all", "1/hour", key="all")]), registry=registry)
        for _ in range(3):  # the third one brings its key into use
            limiter.acquire("ann")
        page = generate_latest(registry)
    assert b"batchlimit_store_duration_seconds_sum" in page
    assert b"batchlimit_time_in_queue_seconds_count" in page
    found = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")


def test_a_front_that_made_its_limiter_tells_of_it_too() -> None:
    registry = CollectorRegistry()
    front = Front("memory://", [Rule("all", "1/hour", key="all")])
    export(front, name="api", registry=registry)
    front.admit("GET", "/", "192.0.2.1", [])
    seen = samples(generate_latest(registry))
    assert seen["batchlimit_store_available",] == 1
    assert seen["batchlimit_tokens_total", "all", "acquired", "store"] == 1
    assert seen["batchlimit_requests_total", "all", "acquired"] == 1


def test_a_front_whose_limiter_has_an_owner_leaves_it_to_the_owner() -> None:
    registry, rules = CollectorRegistry(), Rules([Rule("all", "1/hour", key="all")])
    with RateLimiter.from_url("memory://", rules.quotas) as limiter:
        front = Front(limiter, rules)
        export(limiter, front, registry=registry)
        front.admit("GET", "/", "192.0.2.1", [])
        assert samples(generate_latest(registry))["batchlimit_tokens_total", "all", "acquired", "store"] == 1


UVICORN = ["uvicorn", "--workers", "4", "--fd", "{fd}", "--log-level", "error", "examples.fastapi_metrics:app"]
PRELOADED = [*GUNICORN, "-w", "3", "-k", "uvicorn.workers.UvicornWorker", "--preload", "-b", "fd://{fd}"]
PRELOADED += ["examples.fastapi_metrics:app"]
deprecated = pytest.mark.filterwarnings("ignore:The `uvicorn.workers` module is deprecated:DeprecationWarning")


@pytest.fixture(params=depth([PRELOADED], [UVICORN, PRELOADED]), ids=depth(["preload"], ["uvicorn", "preload"]))
def crew(request: pytest.FixtureRequest, valkey: Server, tmp_path: Path) -> Iterator[Crew]:
    """An application with several workers."""
    pytest.importorskip("uvicorn.workers")
    environment = {"REDIS_URL": valkey.url, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with working(request.param, tmp_path, **environment) as crew:
        yield crew


def counted(crew: Crew) -> Counter[str]:
    """What clients of the application had, of 300 requests."""
    statuses = Counter(status for _ in range(30) for status in crew.session("/search", 10))
    assert statuses.total() == 300
    return Counter(acquired=statuses[200], refused=statuses[429])


@deprecated
def test_all_workers_together_count_what_their_clients_did(crew: Crew) -> None:
    wanted = counted(crew)
    until(lambda: Counter(requests(page(crew), "search")) == wanted)


@deprecated
def test_a_prometheus_that_scrapes_all_workers_has_what_their_clients_did(crew: Crew) -> None:
    with prometheus({"api": crew.port}) as watching:
        wanted = counted(crew)
        until(lambda: scraped(watching) == wanted)


@deprecated
def test_an_outage_is_seen_while_every_rule_refuses_and_no_longer_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    away = {"REDIS_URL": f"redis://127.0.0.1:{free_port()}", "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with working(PRELOADED, tmp_path, **away) as crew:
        assert {*crew.session("/search", 20)} == {503}
        until(lambda: page(crew).get(("batchlimit_store_available",)) == 0)
        workers = {int(each.stem.rpartition("_")[2]): each for each in tmp_path.glob("gauge_livemin_*.db")}
        victim = max(workers.keys() - {crew.process.pid})
        os.kill(victim, signal.SIGKILL)
        until(lambda: not workers[victim].exists())


def scraped(watching: Prometheus) -> Counter[str]:
    found = watching.answer('sum by (result) (batchlimit_requests_total{policy="search"})')
    return Counter({each["metric"]["result"]: int(each["value"][1]) for each in found})


def page(crew: Crew) -> Totals:
    """The page; nothing, where prometheus-client met a file that another worker was about to begin."""
    with closing(http.client.HTTPConnection("127.0.0.1", crew.port, timeout=DEADLINE)) as connection:
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        return samples(reply.read()) if reply.status == 200 else {}


def requests(totals: Totals, rule: str) -> dict[str, int]:
    return {key[2]: int(value) for key, value in totals.items() if key[:2] == ("batchlimit_requests_total", rule)}
