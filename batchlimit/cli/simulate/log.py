"""Lines of an access log, in order of time."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, chain, groupby
from operator import itemgetter
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
    """Read a log whose first line tells the format; lines that cannot be read are counted."""
    rest = (text for text in source if text.strip())
    if (first := next(rest, None)) is None:
        return
    latest = 0.0
    read: Callable[[str], Line] = _of_json if first.lstrip().startswith("{") else _of_common
    for text in chain([first], source):
        try:
            line = read(text)
        except (ValueError, TypeError, AttributeError):  # it is no request
            if text.strip():
                bad.count += 1
                bad.first = bad.first or shown(text.strip())
            continue
        if line[0] > latest:
            latest = line[0]
        elif line[0] < latest - _LATE:
            bad.late += 1
        yield line


def _of_common(line: str) -> Line:
    """Read the common format; the combined one has more at the end."""
    found = _COMMON(line)
    if found is None:
        raise ValueError(line)
    ip, user, time, method, target, status = found.groups()
    return _written(time), method, target, ip, "" if user == "-" else user, 0 if status == "-" else int(status)


def _of_json(line: str) -> Line:
    told = json.loads(line)
    found = {
        field: next((told[name] for name in names if told.get(name) not in (None, "")), None)
        for field, names in _NAMES.items()
    }
    if (request := _REQUEST(str(told.get("request", "")))) is not None:
        found["method"], found["target"] = request.groups()
    if not found["target"]:
        raise ValueError("no path")
    at, user = _time(found["time"]), "" if found["user"] in (None, "-") else str(found["user"])
    method, ip = str(found["method"] or "GET"), str(found["ip"] or "")
    return at, method, str(found["target"]), ip, user, int(found["status"] or 0)


def _time(told: Any) -> float:
    """Return an instant that is written as a number, by ISO 8601, or as in the common format; raises ValueError."""
    try:
        number = float(told)
    except (TypeError, ValueError):
        return _written(str(told))
    return number / 1000 if number > _MILLISECONDS else number


@lru_cache(maxsize=16)  # many lines are of one second
def _written(told: str) -> float:
    try:
        return datetime.strptime(told, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    except ValueError:
        return datetime.fromisoformat(told).timestamp()


def instants(lines: Iterable[Line]) -> Iterator[tuple[float, list[Line]]]:
    """Yield the lines of each instant; an older line is of the one before: servers write when they have answered."""
    ordered = accumulate(lines, lambda last, line: (max(last[0], line[0]), *line[1:]))
    for now, together in groupby(ordered, itemgetter(0)):
        yield now, list(together)


def pause(at: float, count: int) -> float:
    """Return the seconds between two of `count` lines of one instant: 0 unless the instant is a whole second."""
    return 1.0 / count if at == int(at) else 0.0
