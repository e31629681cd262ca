"""A bucket as it lies in the store, for people: what it holds, whom it has leased tokens, which quota it obeys."""

from collections.abc import Mapping
from typing import NamedTuple

from batchlimit.bucket.fair_share import OVER
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.overrides import STEPS
from batchlimit.quota.quota import Quota

_SECOND = 1_000_000
FORMAT = "1"
"""What the fields of a bucket mean: see lua/bucket.lua. A bucket without the field is of format 1."""


class Leaseholder(NamedTuple):
    """One limiter instance that has tokens of a bucket, or asked it lately.

    Attributes:
        instance: its name.
        held: tokens that it may still spend, or has spent and not reported; 0 once they have expired.
        lease: seconds until they expire.
        asked: seconds since it asked last.
        weight: where tokens are short it gets so many times the share of an instance of weight 1.
    """

    instance: str
    held: int
    lease: float
    asked: float
    weight: int


class BucketState(NamedTuple):
    """What a bucket holds.

    Attributes:
        quota: the quota that it obeys.
        levels: tokens in each bandwidth by now; below 0 while later refill is already granted.
        outstanding: tokens that instances hold.
        instances: who they are, the largest holder first.
        rules: the revision of the overrides that this quota is by; 0: no instance that asked knew any.
        revision: the `revision` of the code that it is by.
        age: seconds since the bucket began.
        used: tokens used since then, those that instances hold among them (default 0).
        refused: tokens that instances refused since then (default 0): each tells of its own with its next request.
        shadow_refused: tokens that they admitted and that a quota in shadow mode or on trial was to refuse (default 0).
        paused: seconds for which nothing is admitted yet, see `RateLimiter.pause` (default 0: it is not paused).
        why: the reason that was given for the pause (default "").
    """

    quota: Quota
    levels: tuple[float, ...]
    outstanding: int
    instances: tuple[Leaseholder, ...]
    rules: int
    revision: int
    age: float
    used: int = 0
    refused: int = 0
    shadow_refused: int = 0
    paused: float = 0.0
    why: str = ""


def read_bucket(fields: Mapping[str, str], now: float) -> BucketState:
    """Return the state of a bucket at an instant (seconds since 1970).

    Raises BucketUnavailable if it is damaged, or of another format.
    """
    if (written := fields.get("format", "1")) != FORMAT:
        told = f"this bucket is of format {written}, and this release reads {FORMAT}: see docs/upgrading.md"
        raise BucketUnavailable(told, code="FORMAT")
    try:
        return _read(fields, now)
    except (LookupError, ValueError, ZeroDivisionError) as error:
        raise BucketUnavailable(f"what lies at its name is no bucket, so delete it: {error}", code="DAMAGED") from error


def _read(fields: Mapping[str, str], now: float) -> BucketState:
    fields = as_large(fields)
    quota, time = Quota.decode(fields["quota"]), int(fields["times"].split()[0])
    instant = max(time, round(now * _SECOND) - int(fields["epoch"]))
    outstanding, levels = int(fields["outstanding"]), tuple(map(float, fields["level"].split()))
    holders, over = list[Leaseholder](), list[tuple[int, int]]()  # until when they held what, of leases that are over
    for name, text in fields.items():
        if name.startswith("instance:"):
            held, seen, lasting, _granted, _seq, weight, *_ = map(int, text.split())
            if (expires := seen + lasting) <= instant:
                over.append((max(time, expires), held))
                held = 0
            lease, asked = max(0, expires - instant) / _SECOND, (instant - seen) / _SECOND
            holders.append(Leaseholder(name.removeprefix("instance:"), held, lease, asked, weight))
    if not holders and instant >= time + OVER:  # they were not read: `top` reads as much of a bucket of any size
        over.append((time + OVER, outstanding))
    for expires, held in [*sorted(over), (instant, 0)]:  # as lua/refill.lua
        levels = tuple(
            max(level, min(each.burst - outstanding, level + each.rate * (expires - time) / _SECOND))
            for each, level in zip(quota.bandwidths, levels, strict=True)
        )
        time, outstanding = expires, outstanding - held
    edition, revision = map(int, fields.get("rank", "0 0").split())
    ordered = tuple(sorted(holders, key=lambda each: (-each.held, each.instance)))
    used, refused, shadow = [counted(fields.get(name)) for name in ("used", "refused", "shadow")]
    ends, _, why = fields.get("paused", "0 ").partition(" ")
    paused, told = max(0, int(ends) - instant) / _SECOND, (edition // STEPS, revision, instant / _SECOND)
    return BucketState(quota, levels, outstanding, ordered, *told, used, refused, shadow, paused, why if paused else "")


def as_large(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the fields of a bucket; of a small one those that it would have as a large one."""
    if "q" not in fields:
        return fields
    quota = fields["q"].removesuffix("@")
    epoch, time, since, kept, used, level = fields["s"].split()
    times = f"{time} 0 {int(kept) * 1000} {int(since) * _SECOND}"
    found = {"quota": quota, "epoch": epoch, "version": "1", "level": fields.get("l", level), "outstanding": "0"}
    found |= {"used": used, "shares": "0 0 0", "times": times}
    if quota != fields["q"]:
        found["rank"], _, found["heard"] = fields.get("h", "").removeprefix("@").rpartition(" ")
    return found | {name: fields[name] for name in ("refused", "shadow") if name in fields}


def rules_of(rank: str) -> int:
    """Return the revision of the overrides by which a bucket has its quota; 0 where that is damaged."""
    return counted(rank.partition(" ")[0]) // STEPS


def counted(text: str | None) -> int:
    """Return a count that is only for people; 0 where it is missing or damaged."""
    try:
        return int(float(text or 0))
    except (ValueError, OverflowError):
        return 0
