"""The middlewares behind servers with several workers: each has connections of its own, and all share one limit."""

from pathlib import Path
from typing import Any

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.audit import excess
from benchmarks.web_audit import audited
from tests.depth import depth, only_deep
from tests.integrations.worker_app import FEW
from tests.integrations.worker_commands import GUNICORN, Crew, working
from tests.servers import Server
from tests.sync.stage import until

WORKERS = 3
UVICORN = ["uvicorn", "--workers", "4", "--fd", "{fd}", "--log-level", "error"]
WSGI, ASGI = "made:threaded", "made:tasks"
_MADE = """{first}
from tests.integrations.worker_app import limited, limited_threads
threaded = limited_threads() if {threaded} else None
tasks = None if {threaded} else limited({word!r})
"""


def gunicorn(worker: str, *options: str) -> list[str]:
    return [*GUNICORN, "-w", str(WORKERS), "-k", worker, "-b", "fd://{fd}", "--log-level", "error", *options]


WAYS = {
    "uvicorn": (UVICORN, ASGI),
    "gunicorn sync": (gunicorn("sync"), WSGI),
    "gunicorn sync preload": (gunicorn("sync", "--preload"), WSGI),
    "gunicorn gthread": (gunicorn("gthread", "--threads", "4"), WSGI),
    "gunicorn gthread preload": (gunicorn("gthread", "--threads", "4", "--preload"), WSGI),
    "gunicorn gevent": (gunicorn("gevent"), WSGI),
    "gunicorn gevent preload": (gunicorn("gevent", "--preload"), WSGI),
    "hypercorn": (["hypercorn", "--workers", str(WORKERS), "-b", "fd://{fd}", "--log-level", "error"], ASGI),
    "gunicorn asgi": (gunicorn("asgi"), ASGI),
    "gunicorn asgi preload": (gunicorn("asgi", "--preload"), ASGI),
    "gunicorn uvicorn": (gunicorn("uvicorn.workers.UvicornWorker"), ASGI),
    "gunicorn uvicorn preload": (gunicorn("uvicorn.workers.UvicornWorker", "--preload"), ASGI),
}
_USUAL = ["gunicorn gthread preload", "gunicorn asgi preload"]
_FIRST = {"gunicorn gevent preload": "from gevent import monkey; monkey.patch_all()"}
"""What an application does before it imports anything else."""
_NEEDS = {"gevent": "gevent", "asgi": "gunicorn.asgi", "uvicorn.workers.UvicornWorker": "uvicorn.workers"}


def made(folder: Path, application: str, word: str = "first", first: str = "") -> None:
    """Write the module that a server imports. It is there as a whole or not at all: a server that reloads may look."""
    written = folder / "made.new"
    written.write_text(_MADE.format(first=first, threaded=application == WSGI, word=word), encoding="utf-8")
    written.replace(folder / "made.py")


def met(crew: Crew, count: int) -> list[Any]:
    """What each of so many workers says of itself at last."""
    found: dict[int, Any] = {}

    def have_all_answered() -> bool:
        status, said = crew.get("/plenty")
        assert status == 200
        found[said["pid"]] = said
        return len(found) == count and all(each["connections"] for each in found.values())

    until(have_all_answered)  # while one starts, another one may answer thousands
    return list(found.values())


@pytest.mark.filterwarnings("ignore:The `uvicorn.workers` module is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", depth(_USUAL, list(WAYS)))
def test_each_worker_has_its_connection_and_all_one_limit(name: str, valkey: Any, prefix: str, tmp_path: Path) -> None:
    command, application = WAYS[name]
    for worker, module in _NEEDS.items():
        if worker in command:
            pytest.importorskip(module)
    made(tmp_path, application, first=_FIRST.get(name, ""))
    with working([*command, application], tmp_path, WORKERS_URL=valkey.url, WORKERS_PREFIX=prefix) as crew:
        told = met(crew, 4 if command is UVICORN else WORKERS)
        statuses = [crew.get("/few")[0] for _ in range(FEW * (len(told) + 1))]
    for each in told:
        others = {number for other in told if other is not each for number in other["connections"]}
        assert set(each["connections"]) - others, "it has none that no other worker has"
    imported = {each["imported"] for each in told}
    assert imported == ({crew.process.pid} if "--preload" in command else {each["pid"] for each in told})
    assert set(statuses) <= {200, 429}
    assert 1 <= statuses.count(200) <= FEW


def test_a_worker_whose_locks_were_patched_too_late_says_so(valkey: Server, prefix: str, tmp_path: Path) -> None:
    pytest.importorskip("gevent")
    made(tmp_path, WSGI)
    command = [*gunicorn("gevent", "--preload", "--graceful-timeout", "0"), WSGI]  # the worker hangs
    with working(command, tmp_path, WORKERS_URL=valkey.url, WORKERS_PREFIX=prefix) as crew, crew.asked("/few"):
        crew.says("gevent.monkey.patch_all() before any other import")


@pytest.mark.parametrize("name", depth(["gunicorn sync"], ["uvicorn", "gunicorn sync"]))
def test_memory_says_at_the_start_what_it_means_for_workers(name: str, prefix: str, tmp_path: Path) -> None:
    command, application = WAYS[name]
    source = "from tests.integrations.worker_app import by_url, by_url_threads\n"
    made = "threaded = by_url_threads()\n" if application == WSGI else "tasks = by_url('first')\n"
    (tmp_path / "made.py").write_text(source + made, encoding="utf-8")
    with working([*command, application], tmp_path, WORKERS_URL="memory://", WORKERS_PREFIX=prefix) as crew:
        crew.says("with n workers, n times as much is admitted")


def test_a_reload_keeps_what_was_spent(valkey: Server, prefix: str, tmp_path: Path) -> None:
    made(tmp_path, ASGI)
    command = ["uvicorn", "--reload", "--reload-dir", str(tmp_path), "--fd", "{fd}", "--log-level", "error", ASGI]
    with working(command, tmp_path, WORKERS_URL=valkey.url, WORKERS_PREFIX=prefix) as crew:
        before = [crew.get("/few")[0] for _ in range(FEW)]

        def is_reloaded() -> bool:
            made(tmp_path, ASGI, "second")  # anew: the server may not have looked yet at how the file was
            return bool(crew.reached("/plenty")[1]["word"] == "second")

        until(is_reloaded)
        after = [crew.reached("/few")[0] for _ in range(FEW)]
    assert before == [200] * FEW
    assert after == [429] * FEW


def test_what_workers_admit_of_three_times_a_limit_is_what_one_bucket_allows(valkey: Server) -> None:
    traffic = audited(valkey.url, depth(2, 4), "50/s", requests=320, pace=150.0)
    assert traffic.admitted
    assert set(traffic.statuses) <= {200, 429}
    assert excess(traffic.admitted, Quota.parse("50/s")) == 0


@only_deep
def test_the_audit_finds_what_workers_admit_that_share_no_limit() -> None:
    tried = (audited("memory://", 2, "10/hour", requests=64, pace=1000.0) for _ in range(20))
    # One worker may have answered all before the other one was there.
    traffic = next(each for each in tried if len(each.workers) == 2)
    assert excess(traffic.admitted, Quota.parse("10/hour")) >= 1
