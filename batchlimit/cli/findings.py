"""Facts of a server in, findings of the doctor out: what is right, what is doubtful, what is wrong, and the remedy.

A fact that the server did not tell is a KeyError.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from statistics import median
from typing import Any, NamedTuple

_SLOTS = 16384
_SERVER, _CLUSTER, _CLIENT = (6, 2), (7, 0), (5, 2)
"""The oldest versions of a server, of a server in a cluster, and of redis-py."""
_TRIPS = 5
"""A deadline has so many round trips."""
_APART = 1.0
"""Seconds that two clocks may be apart."""
_FULL, _FILLING = 0.95, 0.8
"""Parts of `maxmemory`."""


class CheckVerdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"


class Finding(NamedTuple):
    """The outcome of one check."""

    verdict: CheckVerdict  # whether all is well
    check: str  # its name
    found: str  # what was found
    remedy: str = ""  # what to do; "" if nothing
    server: str = ""  # which one, where there are several; "" else


ok, warning, fail = [partial(Finding, verdict) for verdict in CheckVerdict]
"""Return that all is well; that something is doubtful; that limiters cannot work, or cannot keep their promise."""


def judged(check: str, found: str, remedy: str, *, fails: bool = False, warns: bool = False) -> Finding:
    """Return what was found, with the remedy unless all is well."""
    if fails or warns:
        return Finding(CheckVerdict.FAIL if fails else CheckVerdict.WARNING, check, found, remedy)
    return ok(check, found)


def round_trip(seconds: Sequence[float], deadline: float) -> Finding:
    """Judge how long answers took."""
    usual, slowest = median(seconds), max(seconds)
    found = f"{usual * 1000:.2f} ms, slowest of {len(seconds)} {slowest * 1000:.2f} ms; deadline {deadline * 1000:g} ms"
    remedy = f"set deadline={max(0.05, _TRIPS * usual):.2g} on limiters, or move them nearer"
    is_close = usual * _TRIPS > deadline or slowest >= deadline
    return judged("round-trip", found, remedy, fails=usual >= deadline, warns=is_close)


def clock(offset: float, uncertainty: float) -> Finding:
    """Judge how far (s) the server's clock is ahead of ours, as far as a round trip can tell."""
    found = f"{abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
    remedy = "synchronise both: overrides end by the server's clock, and no clock may jump"
    return judged("clock", found, remedy, warns=abs(offset) - uncertainty > _APART)


def role(info: Mapping[str, Any], *, by_sentinel: bool) -> Finding:
    """Judge the role of a server, by INFO replication."""
    if (told := str(info["role"])) != "master":
        return fail("role", f"a {told}", "connect to the primary, or by redis+sentinel:// or redis+cluster://")
    replicas = info["connected_slaves"]
    remedy = "start a replica: the sentinels have nothing to fail over to"
    return judged("role", f"primary, {replicas} replicas", remedy, warns=by_sentinel and not replicas)


def eviction(info: Mapping[str, Any]) -> Finding:
    """Judge what a server evicts, by INFO memory."""
    policy, evicts = str(info["maxmemory_policy"]), int(info["maxmemory"]) > 0
    if policy == "noeviction":
        return ok("eviction", policy)
    found = policy if evicts else f"{policy}, and no maxmemory: nothing is evicted yet"
    remedy = "CONFIG SET maxmemory-policy noeviction: a bucket that is evicted begins again full"
    return judged("eviction", found, remedy, fails=evicts, warns=True)


def memory(info: Mapping[str, Any]) -> Finding:
    """Judge how full the memory is, by INFO memory."""
    used, most = int(info["used_memory"]), int(info["maxmemory"])
    if most == 0:
        return ok("memory", f"{_size(used)} used, no maxmemory")
    remedy = "raise maxmemory, or remove other keys: a full server refuses every lease"
    found = f"{_size(used)} of {_size(most)} used"
    return judged("memory", found, remedy, fails=used >= _FULL * most, warns=used >= _FILLING * most)


def version(info: Mapping[str, Any], *, is_cluster: bool) -> Finding:
    """Judge the version of a server, by INFO server."""
    name = "Valkey" if "valkey_version" in info else "Redis"
    told, least = str(info["redis_version"]), _CLUSTER if is_cluster else _SERVER
    remedy = f"use Redis {least[0]}.{least[1]} or newer{' in a cluster' if is_cluster else ''}, or Valkey"
    return judged("server-version", f"{name} {info.get('valkey_version', told)}", remedy, fails=numbers(told) < least)


def client(batchlimit: str, redis_py: str) -> Finding:
    """Judge the versions of what is installed here."""
    found = f"batchlimit {batchlimit}, redis-py {redis_py}"
    return judged("client-version", found, "pip install -U 'redis[hiredis]'", fails=numbers(redis_py) < _CLIENT)


def topology(info: Mapping[str, Any], *, by_cluster: bool) -> Finding:
    """Judge whether the URL is of the kind that the server is, by INFO cluster."""
    is_cluster = str(info["cluster_enabled"]) == "1"
    if is_cluster and not by_cluster:
        return fail("topology", "a node of a cluster, asked as one server", "use redis+cluster://host:port")
    return ok("topology", "a cluster" if is_cluster else "one server")


def slots(info: Mapping[str, Any]) -> Finding:
    """Judge a cluster, by CLUSTER INFO of one node."""
    state, sound = str(info.get("cluster_state", "unknown")), int(info.get("cluster_slots_ok", 0))
    remedy = "see CLUSTER NODES; with cluster-require-full-coverage no the other slots work on"
    found = f"state {state}, {sound} of {_SLOTS} slots served"
    return judged("slots", found, remedy, fails=sound < _SLOTS or state != "ok")


def nodes(told: Sequence[str]) -> Finding:
    """Judge the nodes of a cluster, by the lines of CLUSTER NODES."""
    owners, failed, followed = dict[str, str](), dict[str, str](), set[str]()  # addresses by name; names
    for name, address, flags, follows, *rest in map(str.split, told):
        followed.add(follows)
        if len(rest) > 4:
            owners[name] = address.partition("@")[0]
        if not {"fail", "fail?", "noaddr"}.isdisjoint(flags.split(",")):
            failed[name] = address.partition("@")[0]
    found = f"{len(told)}, of which {len(owners)} are primaries with slots"
    if failed:
        judge = warning if owners.keys().isdisjoint(failed) else fail
        remedy = "start them again, or CLUSTER FORGET them if they are gone for good"
        return judge("nodes", f"{found}; failed: {', '.join(failed.values())}", remedy)
    alone = [address for name, address in owners.items() if name not in followed]
    if alone and len(alone) < len(owners):
        return warning("nodes", f"{found}; without a replica: {', '.join(alone)}", "give it a replica, as others have")
    return ok("nodes", found)


def rights(user: str, missing: Sequence[str]) -> Finding:
    """Judge which commands a user may not use."""
    if missing:
        lacks = f"the user {user} may not use {', '.join(missing)}"
        return fail("rights", lacks, "give it the rights of docs/redis.md, 'A user of its own'")
    return ok("rights", f"the user {user} may do all that a limiter does")


def expiry(looked_at: int, lasting: Sequence[str], *, is_all: bool = True) -> Finding:
    """Judge keys of the prefix that never expire, of a sample; `is_all`: no name was passed over."""
    if lasting:
        found = f"{len(lasting)} of {looked_at} keys never expire, such as {lasting[0]}"
        return warning("expiry", found, "another program wrote them, or a PERSIST: delete them, or use another prefix")
    if looked_at:
        return ok("expiry", f"all of {looked_at} sampled keys expire")
    if not is_all:
        found = "no keys of this prefix among those that were looked at"
        return warning("expiry", found, "batchlimit top looks at all")
    return ok("expiry", "no keys of this prefix yet")


def numbers(told: str) -> tuple[int, ...]:
    """Return the numbers of a version, to be compared; of none that can be read, nothing."""
    return tuple(int(each) for each in re.findall(r"\d+", told)[:2])


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
