"""What a server is asked when its work is measured: the usual calls of instances, and the least of others."""

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any

from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.quota.overrides.overrides import FORMAT, RULE
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.rulebook import rules_name
from batchlimit.stores.client.scripts import bucket_name, digest, give_back_arguments, script, take_arguments

Command = tuple[str | bytes, ...]
Case = Callable[[int, int], Iterator[Command]]
"""So many calls, of a number from which theirs begin."""

# What a bucket cannot do without: the server's clock, its state, the refill, the state again, and an end.
MINIMAL = """
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'level', 'time')
local level = math.min(burst, (tonumber(state[1]) or burst) + (now - (tonumber(state[2]) or now)) * rate)
local allowed = level >= cost
if allowed then level = level - cost end
redis.call('HSET', KEYS[1], 'level', level, 'time', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return allowed and 1 or 0
"""

RICH = Quota(1e6, 1_000_000)
RICH_TWICE = Quota(1e6, 1_000_000, (Quota(1e5, 10_000_000),))
DRY = Quota(0.001, 1)
INSTANCES = (1, 20, 100, 200)
OVERRIDDEN = "take: granted, 1 instance, by an override"
_WANT, _REVISION, _OVERRIDES, _LOOKS = 20, 7, 1000, 10
"""One of so many takes asks for the revision of the overrides: of a limiter that asks 20 times a second."""


def cases(client: Any) -> dict[str, Case]:
    """Return all by name; the client's server has been told their scripts."""
    for name in ("take", "give_back"):
        client.script_load(script(name))
    set_by_operators = {f"{RULE}tenant:{each}": '{"quota": "5/s"}' for each in range(_OVERRIDES)}
    client.hset(rules_name("batchlimit"), mapping={"revision": _REVISION, "form": FORMAT} | set_by_operators)
    minimal: Command = (
        "EVALSHA",
        client.script_load(MINIMAL),
        "1",
        "{batchlimit:minimal:1}",
        "1000000",
        "1000000",
        "1",
    )
    return {
        "an INCR": lambda _, calls: iter([("INCR", "{batchlimit:counter:1}")] * calls),
        "a minimal token bucket": lambda _, calls: iter([minimal] * calls),
        "take: refused": refused,
        "take and give_back in turn": back_and_forth,
        "take of two bandwidths": granted("two", RICH_TWICE, 1),
        OVERRIDDEN: overridden,
    } | {taken_by(instances): granted(f"instances-{instances}", RICH, instances) for instances in INSTANCES}


def taken_by(instances: int) -> str:
    """Return the name of the case."""
    return f"take: granted, {instances} instance{'s' * (instances > 1)}"


def granted(key: str, quota: Quota, instances: int) -> Case:
    """One instance after the other wants tokens for its callers; of those that it had it has 0 to 3 still."""

    def case(start: int, calls: int) -> Iterator[Command]:
        for seq, instance in zip(range(start, start + calls), cycle(range(instances)), strict=False):
            yield _take(key, quota, seq, instance, held=seq % 4)

    return case


def overridden(start: int, calls: int) -> Iterator[Command]:
    """The first of these cases, of an instance that knows overrides, where others may be set at any time."""
    return (
        _take("overridden", RICH, seq, 0, held=seq % 4, rules=_REVISION, look=not seq % _LOOKS)
        for seq in range(start, start + calls)
    )


def refused(start: int, calls: int) -> Iterator[Command]:
    """Four instances ask a bucket that is dry from the first call on."""
    return (_take("dry", DRY, seq, seq % 4) for seq in range(start, start + calls))


def back_and_forth(start: int, calls: int) -> Iterator[Command]:
    """An instance takes, and gives all of it back, by which the bucket forgets it."""
    for seq in range(start, start + calls, 2):
        yield _take("idle", RICH, seq, 0)
        back = GiveBack(_instance(0), seq + 1, tokens=_WANT)
        yield _call("give_back", "idle", give_back_arguments(RICH, back))


def first_takes(quota: Quota, tenants: Iterable[int], instances: int) -> Iterator[Command]:
    """So many buckets, each asked once by so many instances."""
    return (_take(str(tenant), quota, 1, instance) for tenant in tenants for instance in range(instances))


def _take(
    key: str, quota: Quota, seq: int, instance: int, held: int = 0, rules: int = 0, look: bool = False
) -> Command:
    # A quota does not get younger: answers that took longer than any before it are rare.
    age = 3.0 + seq
    ask = Ask(_instance(instance), seq, need=1, queued=1, want=_WANT, held=held, age=age, round_trip=0.0005)
    ask = ask._replace(rules=rules, look=look)
    return _call("take", key, take_arguments(quota, ask, [rules_name("batchlimit")]))


def _instance(number: int) -> str:
    return f"{0x5AFE0C0FFEE00000 + number:016x}"


def _call(name: str, key: str, arguments: list[str | bytes]) -> Command:
    return ("EVALSHA", digest(name), "1", bucket_name("batchlimit", f"tenant:{key}"), *arguments)
