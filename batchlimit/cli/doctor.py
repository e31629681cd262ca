"""`batchlimit doctor`: is the store fit for limiters, and what to do if not. `findings` judges what it asks for."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import urlsplit

import redis
import typer

from batchlimit.admin.buckets import buckets_of
from batchlimit.cli import findings
from batchlimit.cli.findings import CheckVerdict, Finding, fail, ok, warning
from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url
from batchlimit.cli.output import AWAY, NOTHING_DONE, REMEDY, lost, opened, say, show, told
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.stores.client.diagnosis import ELSEWHERE, FAILURES, code_of, failure
from batchlimit.stores.client.rulebook import rules_name, text
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.redis import RedisStore

_SHOWN = "check", "verdict", "found", "remedy"
_PATIENCE = 2.0
"""Seconds for each of the two attempts."""


def doctor(
    url: Url,
    deadline: Annotated[float, typer.Option(min=0.001, help="As of the limiters, in seconds.")] = 0.05,
    strict: Annotated[bool, typer.Option("--strict", help="Status 1 for a warning, too.")] = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Check whether the store is fit for limiters. Status 1 if a check fails, 3 if the store does not answer."""
    with opened(url, prefix) as admin:
        found = list(Examination(admin.store, prefix, deadline).findings())
    several = any(each.server for each in found)
    columns = (*_SHOWN[:2], "server", *_SHOWN[2:]) if several else _SHOWN
    rows = [{"check": each.check} | each._asdict() | {"verdict": str(each.verdict)} for each in found]
    show(rows, output, columns=columns)
    counts = {verdict: sum(each.verdict is verdict for each in found) for verdict in CheckVerdict}
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if not any(each.check == "reachable" and each.verdict is CheckVerdict.OK for each in found):
        raise typer.Exit(AWAY)
    if counts[CheckVerdict.FAIL] or (strict and counts[CheckVerdict.WARNING]):
        raise typer.Exit(NOTHING_DONE)


_PINGS = 20
_SAMPLED = 500
"""Buckets of each server that are looked at."""
_STEPS = 50
"""SCANs for these, at most."""
_KEY = "doctor"
_NEEDED = {
    "EVALSHA": ("0" * 40, "1", "{key}"),
    "SCRIPT": ("LOAD", "return 1"),
    "TIME": (),
    "HMGET": ("{key}", "field"),
    "HGET": ("{key}", "field"),
    "HGETALL": ("{key}",),
    "HSET": ("{key}", "field", "text"),
    "HDEL": ("{key}", "field"),
    "PEXPIRE": ("{key}", "1000"),
}
"""What the scripts of a limiter call; the tests hold it against lua/."""


class Examination:
    """Everything that is asked of one store, for limiters with this prefix and deadline (s)."""

    def __init__(self, store: RedisStore, prefix: str, deadline: float) -> None:
        self._store, self._prefix, self._deadline = store, prefix, deadline
        self._by_cluster = store.is_cluster

    def findings(self) -> Iterator[Finding]:
        """Ask, and yield what is found; nothing after a store that cannot be reached."""
        yield findings.client(version("batchlimit"), redis.__version__)
        servers = list[tuple[str, Any]]()
        try:
            for name, client in self._store.primaries():
                try:
                    client.time()
                    servers.append((name, client))
                except FAILURES as error:
                    yield self._unreachable(failure(error, name))
        except StoreUnavailable as error:
            yield self._unreachable(error)
        if not servers:
            return
        yield ok("reachable", ", ".join(name for name, _ in servers))
        yield from self._whole(servers[0][1])
        for name, client in servers:
            for finding in self._each(name, client):
                yield finding._replace(server=name if len(servers) > 1 else "")

    def _unreachable(self, error: StoreUnavailable) -> Finding:
        remedy = mistaken(self._store.address) or "check the URL, the server and what is between"
        return fail("reachable", str(error), remedy)

    def _whole(self, client: Any) -> Iterator[Finding]:
        """Ask for what concerns all servers together."""
        yield _tried("scripts", self._scripts)
        yield _tried("overrides", self._overrides)
        yield _tried("rights", lambda: self._rights(client))
        if self._by_cluster:
            yield _tried("slots", lambda: findings.slots(client.execute_command("CLUSTER INFO")))
            yield _tried("nodes", lambda: findings.nodes(text(client.execute_command("CLUSTER", "NODES")).splitlines()))

    def _each(self, name: str, client: Any) -> Iterator[Finding]:
        trips, offsets = list[float](), list[float]()
        for _ in range(_PINGS):
            begun, sent = time.perf_counter(), time.time()
            seconds, microseconds = client.time()
            trips.append(time.perf_counter() - begun)
            offsets.append(seconds + microseconds / 1e6 - sent - trips[-1] / 2)  # the server's clock is ahead of ours
        yield findings.round_trip(trips, self._deadline)
        yield findings.clock(offsets[trips.index(min(trips))], min(trips))  # by the quickest answer
        info: dict[str, Any] = {}
        told = _tried("info", lambda: ok("info", str(info.update(client.info()))))
        if not info:
            yield told
        else:
            yield _tried("server-version", partial(findings.version, info, is_cluster=self._by_cluster))
            yield _tried("topology", partial(findings.topology, info, by_cluster=self._by_cluster))
            yield _tried("role", partial(findings.role, info, by_sentinel="+sentinel:" in self._store.address))
            yield _tried("eviction", partial(findings.eviction, info))
            yield _tried("memory", partial(findings.memory, info))
        yield _tried("expiry", lambda: self._expiry(client))

    def _scripts(self) -> Finding:
        self._store.probe(_KEY)
        return ok("scripts", "EVALSHA and SCRIPT LOAD work")

    def _overrides(self) -> Finding:
        try:
            fields = self._store.rules.read(-1).fields
            found = Overrides.read(fields) if fields else Overrides()
        except (ValueError, BucketUnavailable) as error:
            if getattr(error, "code", "") in ELSEWHERE:  # nothing is wrong with them
                raise
            return fail("overrides", str(error), f"delete {rules_name(self._prefix)}, and set what is needed anew")
        if gone := lost(self._store, found):
            return fail("overrides", f"processes obey what the store has lost: {told(gone)}", REMEDY)
        if not fields:
            return ok("overrides", "none")
        return ok("overrides", f"{len(found)}, revision {found.revision}")

    def _rights(self, client: Any) -> Finding:
        user = text(client.execute_command("ACL", "WHOAMI"))
        bucket = bucket_name(self._prefix, _KEY)
        missing = []
        for name, words in _NEEDED.items():
            asked = (each.replace("{key}", bucket) for each in words)
            if text(client.execute_command("ACL", "DRYRUN", user, name, *asked)) != "OK":
                missing.append(name.lower())
        return findings.rights(user, missing)

    def _expiry(self, client: Any) -> Finding:
        cursor, names = 0, list[bytes]()
        for _ in range(_STEPS):
            cursor, found = client.scan(cursor, match=buckets_of(self._prefix), count=100)
            names += found
            if int(cursor) == 0 or len(names) >= _SAMPLED:
                break
        pipeline, names = client.pipeline(transaction=False), names[:_SAMPLED]
        for name in names:
            pipeline.pttl(name)
        lasting = [text(name) for name, left in zip(names, pipeline.execute(), strict=True) if left == -1]
        return findings.expiry(len(names), lasting, is_all=int(cursor) == 0)


def _tried(check: str, ask: Callable[[], Finding]) -> Finding:
    """Return the finding; or that it could not be made, and why: of a fact that INFO lacks, a KeyError."""
    try:
        return ask()
    except KeyError as error:
        return warning(check, f"could not be checked: INFO does not tell {error.args[0]}", "ask who runs the server")
    except StoreUnavailable as error:
        return fail(check, str(error), "see the hint, and docs/redis.md, 'What an error means'")
    except FAILURES as error:
        if code_of(error) == "NOPERM":
            return warning(check, f"could not be checked: {error}", "run it as a user with more rights")
        return warning(check, f"could not be checked: {error}", "does the server know this command?")


def mistaken(address: str) -> str:
    """Return the remedy if the URL is mistaken about TLS, by its first server; "" if that is not the reason."""
    url = urlsplit(address.partition(",")[0])
    if url.hostname is None or url.port is None:
        return ""
    with suppress(OSError), socket.create_connection((url.hostname, url.port), _PATIENCE) as connection:
        if url.scheme.startswith("rediss"):
            connection.sendall(b"PING\r\n")
            is_plain = connection.recv(1) in (b"+", b"-")
            return "the port speaks no TLS: use redis in place of rediss, or the TLS port" if is_plain else ""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
        with context.wrap_socket(connection):
            return "the port speaks TLS: use rediss in place of redis"
    return ""
