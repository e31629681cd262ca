"""After the store has lost its overrides the commands say what processes obey, and `unset` ends it."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from batchlimit import RateLimiter
from batchlimit.admin import Admin
from tests.apis.blocking import Blocking
from tests.cli.conftest import Run, typed_at
from tests.cli.test_exporter import told
from tests.servers import Server, Servers
from tests.sync.stage import until

KEY = "ann"
"""Is served all the time."""
Limiter = Any


class Site(NamedTuple):
    """A store, and a limiter of each API."""

    url: str
    prefix: str
    run: Run
    fleet: list[Limiter]

    def lose(self, names: str = "*") -> None:
        """Lose what FLUSHALL loses of this prefix, or a part: other tests use the server."""
        with Admin.from_url(self.url) as admin:
            for _, client in admin.store.primaries():
                for name in client.keys(f"{{{self.prefix}:{names}"):
                    client.delete(name)

    def overrides(self) -> tuple[str, str]:
        """The verdict of doctor, and what it found."""
        findings = json.loads(self.run("doctor", "-o", "json").stdout)
        (found,) = [each for each in findings if each["check"] == "overrides"]
        return found["verdict"], found["found"]


@pytest.fixture(params=["valkey", "cluster"])
def site(request: pytest.FixtureRequest, servers: Servers, prefix: str) -> Iterator[Site]:
    url = servers.get(request.param).url
    fleet = [each.from_url(url, "1000/s", prefix=prefix) for each in (RateLimiter, Blocking)]
    yield Site(url, prefix, typed_at(url, prefix), fleet)
    for each in fleet:
        each.close()


def asks(limiter: Limiter, fact: Callable[[Limiter], bool]) -> None:
    """Have it serve until something is so."""
    until(lambda: (limiter.try_acquire(KEY), fact(limiter))[1])


def obeys(said: str) -> Callable[[Limiter], bool]:
    return lambda limiter: str(limiter.rules.explain(KEY)).startswith(f"{KEY}: {said}")


@pytest.mark.parametrize(
    ("said", "setting", "ending"),
    [
        ("40/s", ["set", "*", "40/s"], ["unset", KEY]),
        ("0/s", ["set", "*", "0/s"], ["unset", "*"]),
        ("open", ["open", "*"], ["unset", "--all"]),
    ],
)
def test_lost_overrides_are_told_and_end_by_unset(site: Site, said: str, setting: list[str], ending: list[str]) -> None:
    run = site.run
    run(*setting, "--yes")
    for each in site.fleet:
        asks(each, obeys(said))
    site.lose()
    for each in site.fleet:
        asks(each, lambda limiter: limiter.rules.failures > 0)
    until(lambda: "the store has lost" in run("rules").stderr)
    (row,) = json.loads(run("rules", "-o", "json").stdout)
    assert (row["name"], row["quota"], row["state"]) == ("*", said, "lost")
    assert json.loads(run("rules", "--explain", KEY, "-o", "json").stdout)["state"] == "lost"
    assert json.loads(run("get", KEY, "-o", "json").stdout)["override"] == f"* {said}, which the store has lost"
    assert site.overrides() == ("fail", f"processes obey what the store has lost: * {said}")
    metrics = told(run("exporter", "--once").stdout)
    assert (metrics["overrides", "lost"], metrics["overrides", "quota"]) == (1, 0)
    assert all(map(obeys(said), site.fleet))
    ended = run(*ending)
    assert (ended.exit_code, f"ended, which the store had lost: * {said}" in ended.stderr) == (0, True)
    for each in site.fleet:
        asks(each, obeys("1000/s, by the code"))
    assert "lost" not in run("rules").stderr
    assert site.overrides()[0] == "ok"


def test_what_was_lost_before_is_not_told_after_a_second_loss(site: Site) -> None:
    threads = site.fleet[0]
    for said in ("40/s", "50/s"):
        site.run("set", "*", said, "--yes")
        asks(threads, obeys(said))
        site.lose("}rules")
        until(lambda said=said: (threads.try_acquire(KEY), f"* {said}" in site.overrides()[1])[1])  # type: ignore[misc]


def test_of_many_lost_overrides_some_are_named(site: Site) -> None:
    with Admin.from_url(site.url, prefix=site.prefix) as admin:
        admin.apply({f"search:{n}": "5/s" for n in range(8)})
    asks(site.fleet[0], lambda limiter: len(limiter.rules.overrides) == 8)
    site.lose()
    asks(site.fleet[0], lambda _: site.overrides()[1].endswith(" 5/s, 3 more"))


def test_unset_of_what_is_not_there_removes_nothing_else(run: Run, valkey: Server, prefix: str) -> None:
    run("set", "bob", "5/s")
    with Admin.from_url(valkey.url, prefix=prefix) as admin:
        before = admin.overrides()
        assert admin.unset(KEY) == ()
        assert ([*admin.overrides()], admin.overrides().revision > before.revision) == ([*before], True)
