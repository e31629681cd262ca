"""What an HTTP response says about a limit: header fields of draft-ietf-httpapi-ratelimit-headers-11, or older ones.

The body of a refusal are problem details (RFC 9457). All names of fields and of problem types stand here, so that a
newer draft is one place to change.

A token bucket has no window. The fields name one that sustains the same rate: `q` is the burst, and `w` is how many
seconds the burst takes to refill. `r` is a hint: what this process could still admit. `t` says for how many seconds
`r` lasts at the sustained rate, or when the next token comes.
"""

import json
import math
import os
import random
import re
import time
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from math import ceil
from typing import Literal, get_args
from urllib.parse import quote

from batchlimit import Quota
from batchlimit.base.decision import LARGEST, whole_seconds

POLICY = b"ratelimit-policy"
RATELIMIT = b"ratelimit"
RETRY_AFTER = b"retry-after"
LEGACY_LIMIT = b"x-ratelimit-limit"
LEGACY_REMAINING = b"x-ratelimit-remaining"
LEGACY_RESET = b"x-ratelimit-reset"
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

Form = Literal["draft-11", "legacy", "both", "off"]
Header = tuple[bytes, bytes]
_MOST_POLICIES = 256
"""Rules of some quota of which it is remembered what the fields say."""


_DESCRIBED = {
    "RateLimit-Policy": ("string", "Each limit: how many requests (q) in how many seconds (w)"),
    "RateLimit": ("string", "What is left of each limit: how many requests (r) for how many seconds (t)"),
    "X-RateLimit-Limit": ("integer", "The most requests at once of the tightest limit"),
    "X-RateLimit-Remaining": ("integer", "How many requests are left of it"),
    "X-RateLimit-Reset": ("integer", "When all of them are back, in seconds since 1970"),
    "Retry-After": ("integer", "Seconds until a request can succeed"),
}
_PARTITION_BYTES = 9
_TIME = re.compile(rb";t=\d+(?=;pk=)").sub
Told = tuple[str, Quota, str, int, int | None]
"""What the fields say of one rule that a request was charged to, or that refused it: its name, its quota, and the key.
Then the tokens that this process could still admit, and which of the quota's bandwidths binds (None: the slowest)."""


def texts(fields: Iterable[Header]) -> list[tuple[str, str]]:
    """Return header fields as frameworks take them: as text, a character for each byte."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]


def described(form: Form) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each field of a refusal, its JSON type, and what it says: for descriptions of an API."""
    for name, (kind, text) in _DESCRIBED.items():
        is_legacy, is_draft = name.startswith("X-"), name.startswith("RateLimit")
        if form == "both" or not ((is_legacy and form != "legacy") or (is_draft and form != "draft-11")):
            yield name, kind, text


class Policy:
    """What one rule's fields always say; its slowest bandwidth has its name, others "#" and a number more."""

    __slots__ = ("items", "limits", "most", "rates", "slowest")

    def __init__(self, name: str, quota: Quota) -> None:
        self.most = min(quota.largest_cost, LARGEST)
        parts = quota.bandwidths
        self.slowest = slowest = max(range(len(parts)), key=lambda number: _window(parts[number]))
        order = [slowest, *(number for number in range(len(parts)) if number != slowest)]
        texts = [_text(name), *(_text(f"{name}#{number}") for number in range(2, len(parts) + 1))]
        names = [text.replace("%", "%%") for _, text in sorted(zip(order, texts, strict=True))]
        # Tokens a second; no integer is too large for a field.
        self.rates = [max(each.rate, self.most / (LARGEST - 1)) if each.rate else 0.0 for each in parts]
        # To be filled with the `pk` of each bandwidth: the items of RateLimit-Policy.
        sizes = [f";q={min(each.burst, LARGEST)}" + f";w={_window(each):.0f}" * bool(each.rate) for each in parts]
        self.items = ", ".join(f"{names[number]}{sizes[number]};pk=:%b:" for number in order).encode()
        # The item of RateLimit where this bandwidth binds. First the `pk` is filled in, then what is left and how long
        # that lasts, unless no token ever comes. What stays for the second time has each % twice.
        left = [";r=%%d;t=%%d" if rate else ";r=0" for rate in self.rates]
        limits = [name.replace("%", "%%") + each + ";pk=:%b:" for name, each in zip(names, left, strict=True)]
        self.limits = [limit.encode() for limit in limits]


def _text(name: str) -> str:
    """Return a name as a string of a structured field: printable ASCII, the rest percent-encoded."""
    written = "".join(letter if " " <= letter <= "~" else quote(letter, errors="surrogatepass") for letter in name)
    escaped = written.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _window(part: Quota) -> float:
    return min(LARGEST, max(1, math.ceil(part.burst / part.rate))) if part.rate else math.inf


class Fields:
    """Writes the header fields of responses.

    Args:
        form: "draft-11" (default: `RateLimit-Policy` and `RateLimit`), "legacy" (`X-RateLimit-Limit`, `-Remaining` and
            `-Reset`, the latter in seconds since 1970), "both", or "off". `Retry-After` is written in every form.
        secret: what the partition keys (`pk`) are hashed with, so that nobody can guess keys from them (default None:
            random, so each process tells another `pk`).
        chance: returns a number from 0 to 1, by which `Retry-After` is spread (default `random.random`).
        wall: returns seconds since 1970 (default `time.time`).

    Raises:
        ValueError: the form is unknown.

    Example:
        >>> from batchlimit import Quota
        >>> login = ("login", Quota.parse("5/minute"), "ip:192.0.2.1", 4, None)
        >>> for name, value in Fields(secret=b"s").of([login]):
        ...     print(name, value)
        b'ratelimit-policy' b'"login";q=5;w=60;pk=:...:'
        b'ratelimit' b'"login";r=4;t=48;pk=:...:'
    """

    def __init__(
        self,
        form: Form = "draft-11",
        secret: bytes | None = None,
        *,
        chance: Callable[[], float] = random.random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if form not in get_args(Form):
            raise ValueError(f"headers are one of {', '.join(map(repr, get_args(Form)))}, not {form!r}")
        self._draft, self.has_legacy = form in ("draft-11", "both"), form in ("legacy", "both")
        secret = os.urandom(16) if secret is None else secret
        secret = secret if len(secret) <= blake2s.MAX_KEY_SIZE else blake2s(secret).digest()
        # Its blocks are half as long as those of blake2b, and so are most keys.
        self.partitions = blake2s(digest_size=_PARTITION_BYTES, key=secret) if self._draft else None
        self._chance, self._wall = chance, wall
        self.policy_of = lru_cache(_MOST_POLICIES)(Policy)  # of a function, each key has an equal quota of its own

    def __repr__(self) -> str:
        return f"<Fields, draft {'on' if self._draft else 'off'}, legacy {'on' if self.has_legacy else 'off'}>"

    def of(self, applied: Sequence[Told], again: int | None = None) -> list[Header]:
        """Return the fields of a response, of the rules that its request was charged to; `again` as of Prepared."""
        left = {key: (remaining, quota, binding) for _, quota, key, remaining, binding in applied}
        rules = [(name, quota, binding) for name, quota, _, _, binding in applied]
        return Prepared(rules, self).of([each[2] for each in applied], left, again) or []

    def refused(self, applied: Sequence[Told], retry_after: float | None) -> list[Header]:
        """Return the fields of a refusal; `t` is `Retry-After` before that is spread. What never fits has neither."""
        told = self.of(applied, _least(retry_after))
        if retry_after == math.inf:
            told = [(name, _TIME(b"", value) if name == RATELIMIT else value) for name, value in told]
        return told + self.retry_after(retry_after)

    def retry_after(self, seconds: float | None) -> list[Header]:
        """Return `Retry-After`: whole seconds from 1, spread upwards by at most a tenth; nothing for inf or None."""
        if (least := _least(seconds)) is None:
            return []
        return [(RETRY_AFTER, b"%d" % (least + int(self._chance() * (least // 10 + 1) * (1 - 1e-9))))]

    def of_legacy(self, applied: Iterable[tuple[int, Quota, int | None]]) -> list[Header]:
        """Return the fields of the tightest of these: what remains, the quota, and the bandwidth that binds."""
        remaining, quota, binding = min(applied, key=lambda one: one[0] / (one[1].largest_cost or math.inf))
        remaining = min(remaining, quota.largest_cost)
        found = [(LEGACY_LIMIT, b"%d" % quota.largest_cost), (LEGACY_REMAINING, b"%d" % remaining)]
        if math.isfinite(reset := quota.full_after(remaining, binding)):
            found.append((LEGACY_RESET, b"%d" % min(LARGEST, math.ceil(self._wall() + reset))))
        return found


class Prepared:
    """The fields of rules, each with its quota and the bandwidth that binds, but for their keys and what is left."""

    __slots__ = ("_legacy", "_limits", "_partitions", "_parts", "_policies", "_times")

    def __init__(self, rules: Sequence[tuple[str, Quota, int | None]], fields: Fields) -> None:
        self._partitions = fields.partitions if rules else None
        self._legacy = fields.of_legacy if rules and fields.has_legacy else None
        policies, limits, times, self._parts = list[bytes](), list[bytes](), list[int](), []
        for name, quota, binding in rules if self._partitions or self._legacy else ():
            policy = fields.policy_of(name, quota)
            number = policy.slowest if binding is None else binding
            self._parts.append((len(policies), quota, binding, policy.most, policy.rates[number]))
            policies.append(policy.items)
            limits.append(policy.limits[number])
            times.append(len(policy.rates))
        self._policies, self._limits = b", ".join(policies), b", ".join(limits)
        self._times = None if sum(times) == len(times) else times  # how often each `pk` is written; None: once

    def keyed(self, keys: Sequence[str]) -> tuple[bytes, bytes]:
        """Return RateLimit-Policy of these keys, and their RateLimit but for what is left."""
        if self._partitions is None:
            return b"", b""
        pks: list[bytes] = []
        for key in keys:
            hashed = self._partitions.copy()
            hashed.update(key.encode("utf-8", "surrogatepass"))
            pks.append(b2a_base64(hashed.digest(), newline=False))
        limits = self._limits % tuple(pks)
        if self._times is not None:
            pks = [pk for pk, times in zip(pks, self._times, strict=True) for _ in range(times)]
        return self._policies % tuple(pks), limits

    def of(
        self,
        keys: Sequence[str],
        left: Mapping[str, tuple[int, Quota | None, int | None]],
        again: int | None = None,
        keyed: tuple[bytes, bytes] | None = None,
    ) -> list[Header] | None:
        """Return the fields; None: prepare anew, for another quota holds or another bandwidth binds.

        `again`: seconds after which who was refused may come; `keyed`: what was keyed by these keys before.
        """
        numbers: list[int] = []
        for at, quota, binding, most, rate in self._parts:
            remaining, now, binds = left[keys[at]]
            if binds != binding or (now is not quota and now is not None):
                return None
            if rate:
                if remaining > most:
                    remaining = most
                numbers += remaining, again or ceil((remaining or 1) / rate)
        found: list[Header] = []
        if self._partitions is not None:
            policies, limits = keyed or self.keyed(keys)
            found = [(POLICY, policies), (RATELIMIT, limits % tuple(numbers))]
        if self._legacy:
            found += self._legacy((left[keys[at]][0], quota, binding) for at, quota, binding, *_ in self._parts)
        return found


def _least(seconds: float | None) -> int | None:
    """Return the least `Retry-After`; None: there is none."""
    return None if (whole := whole_seconds(seconds)) is None else max(1, whole)


MEDIA_TYPE = b"application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, as an object of the type `application/problem+json`."""

    status: int
    type: str
    title: str
    detail: str = ""
    policies: tuple[str, ...] = ()

    def body(self) -> bytes:
        """Return the object as JSON."""
        told: dict[str, object] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail:
            told["detail"] = self.detail
        if self.policies:
            told["violated-policies"] = list(self.policies)
        return json.dumps(told, separators=(",", ":")).encode()


def quota_exceeded(policies: Sequence[str]) -> Problem:
    """Return the 429 of a rate limit."""
    title = "Request cannot be satisfied as assigned quota has been exceeded"
    return Problem(429, QUOTA_EXCEEDED, title, policies=tuple(policies))


def reduced_capacity(policies: Sequence[str] = (), detail: str = "") -> Problem:
    """Return the 503 of a store that is away, or of a concurrency limit."""
    title = "Request cannot be satisfied due to temporary server capacity constraints"
    return Problem(503, REDUCED_CAPACITY, title, detail, tuple(policies))


def unidentified(policies: Sequence[str]) -> Problem:
    """Return the 403 of a request of which nobody can say who asks."""
    detail = "A limit applies here by caller, and this request does not say who is calling."
    return Problem(403, "about:blank", "Forbidden", detail, tuple(policies))
