"""Lines of an access log, in order of time."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from batchlimit.base.redaction import shown

Line = tuple[float, str, str, str, str, int]
"""When (seconds since 1970), method, target with its query, address, user ("" if unknown), status (0 if unknown)."""
_COMMON = re.compile(r'(\S+) \S+ (.*?) \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d{3}|-)').match
_REQUEST = re.compile(r"(\S+) (\S+)").match
_NAMES = {
    "time": ("time", "timestamp", "ts", "@timestamp", "time_iso8601", "time_local", "msec", "date"),
    "method": ("method", "request_method", "verb"),
    "target": ("path", "uri", "request_uri", "url", "target"),
    "ip": ("remote_addr", "ip", "client_ip", "remote_ip", "client", "addr"),
    "user": ("user", "remote_user", "user_id", "username"),
    "status": ("status", "status_code", "code"),
}
"""The fields of a JSON line that a replay reads, each with its usual names; `request` may hold method and target."""
_MILLISECONDS = 1e11
"""A number of seconds since 1970 is less than this for three thousand years."""
_LATE = 60.0
"""Seconds by which a line may be older than one before it: servers write when they have answered."""


@dataclass
class Bad:
    """The lines that could not be read, or not be replayed at their time."""

    count: int = 0  # how many
    first: str = ""  # the first of them, as it may be shown
    late: int = 0  # how many could be read, and are much older than one before them


def lines(source: Iterator[str], bad: Bad) -> Iterator[Line]:
    """Read a log whose first line tells the format, and count lines that are none. No time goes back."""
    latest, read = 0.0, None
    for text in filter(str.strip, source):
        read = read or (_of_json if text.lstrip().startswith("{") else _of_common)
        try:
            line = read(text)
        except (ValueError, TypeError, AttributeError):  # it is no request
            bad.count += 1
            bad.first = bad.first or shown(text.strip())
            continue
        bad.late += line[0] < latest - _LATE
        latest = max(latest, line[0])
        yield latest, *line[1:]


def _of_common(line: str) -> Line:
    """Read the common format; the combined one has more at the end."""
    ip, user, time, method, target, status = _COMMON(line).groups()  # type: ignore[union-attr]  # caught above
    return _time(time), method, target, ip, "" if user == "-" else user, 0 if status == "-" else int(status)


def _of_json(line: str) -> Line:
    told = json.loads(line)
    found = {field: next(filter(_is_told, map(told.get, names)), "") for field, names in _NAMES.items()}
    if (request := _REQUEST(str(told.get("request", "")))) is not None:
        found["method"], found["target"] = request.groups()
    if not found["target"]:
        raise ValueError("no path")
    method, target, ip, user = [str(found[each]) for each in ("method", "target", "ip", "user")]
    return _time(found["time"]), method or "GET", target, ip, "" if user == "-" else user, int(found["status"] or 0)


def _is_told(value: object) -> bool:
    return value not in (None, "")


@lru_cache(maxsize=16)  # many lines are of one second
def _time(told: Any) -> float:
    """Return an instant that is written as a number, by ISO 8601, or as in the common format; raises ValueError."""
    with suppress(ValueError):
        return float(told) / (1000 if float(told) > _MILLISECONDS else 1)
    try:
        return datetime.strptime(told, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    except ValueError:
        return datetime.fromisoformat(told).timestamp()
