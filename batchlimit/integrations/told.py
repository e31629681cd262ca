"""What responses of upstreams say of their limits: how many calls or tokens are left, until when, when to come back.

It reads header fields and bodies, and no clock. What is missing, damaged or cannot be meant is left out. What it reads
of a response its caller can read again.
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from batchlimit.base.steps import Steps, run

_DIGITS = re.compile(r"[0-9]{1,300}(\.[0-9]+)?", re.ASCII).fullmatch
_LENGTHS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTH = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_NAME = re.compile(
    r"(?:x-|anthropic-)?(?:rate-?limit-|(?=priority-))"
    r"(?:(limit|remaining|reset-after|reset)(?:-([a-z0-9-]+))?|([a-z0-9-]+)-(limit|remaining|reset))",
    re.ASCII,
).fullmatch
_ITEM = re.compile(r'\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s;,="]++))((?:[^,"]|"(?:[^"\\]|\\.)*+")*+)(?:,|$)')
_PARAMETER = re.compile(r";\s*([a-z]+)\s*=\s*([0-9.]+)")
_MEMBER = re.compile(r"\b(limit|remaining|reset)\s*=\s*([0-9.]+)")
_LONGEST_FIELD = 1024
_SECONDS_SINCE_1970, _MILLISECONDS = 1e9, 1e12
"""A reset is an instant from here on, and one in milliseconds from there on: nobody waits for thirty years."""
_GITHUB_WINDOWS = {"search": 60.0, "code_search": 60.0}
_GITHUB_WINDOW, _SECONDARY = 3600.0, 60.0
"""The window of GitHub's other resources, and how long to wait where a secondary limit does not say it (s)."""


class Allowance(NamedTuple):
    """What upstream says of one of its limits."""

    remaining: float  # how much is left
    limit: float | None = None  # how much there is at most; None: not told
    reset: float | None = None  # seconds until all of it is there again; None: not told
    window: float | None = None  # seconds of the window in which there is so much; None: not told
    refills: bool = False  # whether it comes back bit by bit, as upstream describes it, and not at once


class Observation(NamedTuple):
    """The limits that one response tells of."""

    after: float | None  # seconds after which to come back; None: it does not say so
    # by kind, such as "requests", "tokens", "input-tokens", or the name that upstream has for a limit
    allowances: dict[str, Allowance]


def observe(headers: Mapping[str, str], now: float, *, status: int = 200, body: bytes = b"") -> Observation:
    """Read what a response says of limits.

    It knows the header fields of OpenAI, Anthropic, Azure, GitHub, GitLab and those who write alike, `RateLimit` of all
    drafts, `Retry-After`, and the bodies of Gemini, Shopify and GitHub.

    Args:
        headers: of the response, in whatever case.
        now: seconds since 1970; the response's `date` counts before it.
        status: of the response (default 200).
        body: of the response, where it is at hand (default: none).

    Returns:
        An Observation. Nothing is raised, whatever upstream writes.

    Example:
        >>> told = observe({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "7",
        ...                 "x-ratelimit-reset-requests": "53s"}, now=0.0)
        >>> told.allowances["requests"]
        Allowance(remaining=7.0, limit=60.0, reset=53.0, window=None, refills=True)
    """
    fields = lowered(headers)
    said: Any = None
    with suppress(ValueError, RecursionError):
        said = json.loads(body) if body else None
    allowances = _by_names(fields, now) | _of_draft(fields) | _of_shopify(fields, said)
    after = told_to_wait(fields, now)
    if after is None:
        after = _of_body(said, status)
    if after is None and status in (403, 429):
        spent = (each.reset for each in allowances.values() if not each.remaining and not each.refills)
        after = max(filter(None, spent), default=None)
    return Observation(after, allowances)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields by their names in lower case; those of one name as one."""
    fields: dict[str, str] = {}
    for name, text in headers.items():
        lower = name.lower()
        fields[lower] = f"{fields[lower]}, {text}" if lower in fields else text
    return fields


def told_to_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return for how many seconds header fields ask to wait; None: they do not, or cannot mean it."""
    milliseconds, text = headers.get("retry-after-ms"), (headers.get("retry-after") or "").strip()
    if (seconds := _number(milliseconds)) is not None:
        return seconds / 1000
    if (seconds := _number(text)) is not None:
        return seconds
    at = _instant(text)
    return None if at is None or (after := at - _clock(headers, now)) < 0 else after


def _clock(headers: Mapping[str, str], now: float) -> float:
    """Return the time by the clock of upstream, where it tells that."""
    at = _instant(headers.get("date") or "")
    return now if at is None else at


def _by_names(fields: Mapping[str, str], now: float) -> dict[str, Allowance]:
    """Read fields that are named by what they say, and perhaps by a kind."""
    found: dict[str, dict[str, str]] = {}
    for name, text in fields.items():
        if (named := _named(name)) is not None:
            kind, what = named
            found.setdefault(kind, {})[what] = text
    resource = (fields.get("x-ratelimit-resource") or "").strip() if "x-github-request-id" in fields else ""
    allowances: dict[str, Allowance] = {}
    for kind, said in found.items():
        if (remaining := _number(said.get("remaining"))) is not None:
            after = said.get("reset-after")
            reset = _number(after) if after else _reset(said.get("reset"), fields, now)
            limit, window = _limit(said.get("limit", ""), fields)
            if resource and not kind:
                window = _GITHUB_WINDOWS.get(resource, _GITHUB_WINDOW)
            allowances[kind or resource or "requests"] = Allowance(remaining, limit, reset, window, bool(kind))
    return allowances


@lru_cache(maxsize=256)
def _named(name: str) -> tuple[str, str] | None:
    """Return of which kind a field of this name tells, or "", and what; None: of no limit."""
    if (match := _NAME(name)) is None:
        return None
    what, kind, other_kind, other_what = match.groups()
    return kind or other_kind or "", what or other_what


def _limit(text: str, fields: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Return a limit, and its window, as old drafts wrote them: `10, 10;w=1, 50;w=60`."""
    first = text.partition(",")[0].partition(";")[0]
    limit = _number(first) or None
    policies = _items(text) if ";" in text else _items(fields.get("ratelimit-policy", ""))
    windows = (said["w"] for name, said in policies if "w" in said and _number(name) == limit)
    return limit, next(windows, None)


def _of_draft(fields: Mapping[str, str]) -> dict[str, Allowance]:
    """Read `RateLimit`, which names policies, or says limit, remaining and reset of one."""
    text = fields.get("ratelimit", "")[:_LONGEST_FIELD]
    if not text:
        return {}
    said = {name: _number(value) for name, value in _MEMBER.findall(text)}
    if (remaining := said.get("remaining")) is not None:
        limit, window = _limit(f"{said.get('limit') or ''}", fields)
        return {"requests": Allowance(remaining, limit, said.get("reset"), window)}
    policies = dict(_items(fields.get("ratelimit-policy", "")))
    return {
        name: Allowance(left["r"], policies.get(name, {}).get("q"), left.get("t"), policies.get(name, {}).get("w"))
        for name, left in _items(text)
        if "r" in left
    }


def _items(text: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the members of a list of structured fields, with those of their parameters that are numbers."""
    for quoted, bare, rest in _ITEM.findall(text[:_LONGEST_FIELD]):
        numbers = {name: _number(value) for name, value in _PARAMETER.findall(rest)}
        yield quoted or bare, {name: value for name, value in numbers.items() if value is not None}


def _of_shopify(fields: Mapping[str, str], said: Any) -> dict[str, Allowance]:
    """Read what Shopify counts: calls as `32/40`, and the points of a query in its body."""
    allowances: dict[str, Allowance] = {}
    used, _, most = fields.get("x-shopify-shop-api-call-limit", "").partition("/")
    if (spent := _number(used)) is not None and (limit := _number(most)):
        allowances["requests"] = Allowance(max(0.0, limit - spent), limit, refills=True)
    status = _at(said, "extensions", "cost", "throttleStatus")
    left, limit, rate = [_real(_at(status, name)) for name in ("currentlyAvailable", "maximumAvailable", "restoreRate")]
    if left is not None and limit and rate:
        allowances["points"] = Allowance(left, limit, max(0.0, limit - left) / rate, refills=True)
    return allowances


def _of_body(said: Any, status: int) -> float | None:
    """Return how long to wait by the body of a refusal: Gemini's RetryInfo, or GitHub's secondary limit."""
    error = _at(said[0] if isinstance(said, list) and said else said, "error")
    details = _at(error, "details")
    for each in details if isinstance(details, list) else ():
        kind, delay = _at(each, "@type"), _at(each, "retryDelay")
        if isinstance(kind, str) and kind.endswith("google.rpc.RetryInfo") and isinstance(delay, str):
            return _length(delay)
    message = _at(said, "message")
    is_secondary = status in (403, 429) and isinstance(message, str) and "secondary rate limit" in message
    return _SECONDARY if is_secondary else None


def _reset(text: str | None, fields: Mapping[str, str], now: float) -> float | None:
    """Return in how many seconds a limit is whole again, however upstream writes that."""
    text = (text or "").strip()
    if (number := _number(text)) is not None:
        if number < _SECONDS_SINCE_1970:
            return number
        return max(0.0, (number / 1000 if number >= _MILLISECONDS else number) - _clock(fields, now))
    if (length := _length(text)) is not None:
        return length
    at = _instant(text)
    return None if at is None else max(0.0, at - _clock(fields, now))


def _length(text: str) -> float | None:
    """Return the seconds of a length of time such as `6m0s`, `17ms` or `1h2m3.5s`."""
    parts = _LENGTH.findall(text[:64])
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return math.fsum(float(number) * _LENGTHS[unit] for number, unit in parts)


def _instant(text: str) -> float | None:
    """Return the seconds since 1970 of a date of HTTP or of RFC 3339, which is of UTC where it names no zone."""
    for read in (parsedate_to_datetime, datetime.fromisoformat) if text else ():
        try:
            found = read(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError):
            pass
    return None


def _number(text: str | None) -> float | None:
    return float(text) if text and _DIGITS(text.strip()) else None


def _real(said: Any) -> float | None:
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    return float(said) if is_number and 0 <= said < _MILLISECONDS else None


def _at(said: Any, *names: str) -> Any:
    for name in names:
        said = said.get(name) if isinstance(said, dict) else None
    return said


class _Cut(io.BytesIO):
    """The part of a body that was read, and the `error` that ended it."""

    error: Exception

    def read(self, size: int | None = None, /) -> bytes:
        """Return the next part (-1: all that came); None, all of it, or what comes after that, is the error."""
        if size is None or not (found := super().read(size)):
            raise self.error
        return found


def read_body(response: Any, following: Callable[..., Any] = next) -> Steps[bytes]:
    """Read a body of an urllib3 part by part, and decode it. A later reader gets the same bytes, and the same error."""
    parts, raw = list[bytes](), response.raw
    stream = raw.stream(1 << 16, decode_content=False)
    try:
        while sent := (yield following(stream, b"")):
            parts.append(sent)
    except Exception as error:
        response.raw = _anew(raw, cut := _Cut(b"".join(parts)))
        cut.error = error
        raise
    response.raw = _anew(raw, io.BytesIO(b"".join(parts)))
    return (yield _anew(raw, io.BytesIO(b"".join(parts))).read(decode_content=True))  # type: ignore[no-any-return]


def content(response: Any) -> bytes:
    """Do so in a thread, unless it was read already."""
    return response._content or run(read_body(response))  # noqa: SLF001


def _anew(raw: Any, body: io.BytesIO) -> Any:
    return type(raw)(
        body, raw.headers, raw.status, raw.version, reason=raw.reason, preload_content=False,
        decode_content=raw.decode_content, enforce_content_length=False,
        original_response=raw._original_response,  # noqa: SLF001  it has the cookies
    )  # fmt: skip
