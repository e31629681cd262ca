"""Requests as an attacker writes them: a target, a method and header fields, drawn from a seed."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

PATHS = ["/login", "/items/7", "/mounted", "/mounted/x", "/orders"]
METHODS = ["GET"] * 8 + ["POST"] * 4 + ["OPTIONS"] * 2 + ["HEAD", "get", "post", "PUT", "DELETE", "PATCH", "BREW"]
PREFLIGHT = "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\n"
_ALMOST = [
    "Origin:\r\nAccess-Control-Request-Method: POST\r\n",
    "Origin: http://a\r\nAccess-Control-Request-Method:\r\n",
]
Draw = random.Random
_ROOTS = ["/v1", "/v1/", "/a", "/zz/v1", "/%76%31", "/", "//", "/%c3%a9", "a"]
_HOSTS = [
    "http://h", "HTTP://h", "https://h:1", "http://", "http:", "x:", "//h", "http:///", "ws://u:p@h", "http://[::1]",
    "/",
]  # fmt: skip
_TAILS = [
    "/", "//", "?", "?a=b", "#x", ";x", ";", "%0a", "%0d%0a", "%09", "%20", "%00", "%2f", "/.", "/..", "%3f", "%23x",
]  # fmt: skip
_HEADS = [
    "/", "//", "/./", "/x/../", "/x//../", "/../", "/%2e%2e/", "/;x/", "\\", "/%5c", "%2f", "", " ", "%20", "%09",
    "%0a",
]  # fmt: skip
_MOUNTS = ["SCRIPT_NAME", "Daphne-Root-Path"]
"""Fields from which a server takes where the application is mounted."""
_FIELDS = [
    "PATH_INFO", "Script-Name", "X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override",
]  # fmt: skip


class Written(NamedTuple):
    """A request as it is sent, but for its first fields."""

    method: str
    target: str
    fields: str = ""


def _some_letters(draw: Draw, path: str) -> str:
    return "".join(f"%{ord(each):02x}" if each != "%" and draw.random() < 0.3 else each for each in path)


def _encoded_again(draw: Draw, path: str) -> str:
    return path.replace("%", "%25")


def _other_case(draw: Draw, path: str) -> str:
    return "".join(each.upper() if draw.random() < 0.5 else each for each in path)


def _slash(draw: Draw, path: str) -> str:
    """Write one of the slashes differently."""
    at = draw.choice([i for i, each in enumerate(path) if each == "/"] or [0])
    return path[:at] + draw.choice(_HEADS) + path[at + 1 :]


def _tail(draw: Draw, path: str) -> str:
    return path + draw.choice(_TAILS)


def _below(draw: Draw, path: str) -> str:
    return draw.choice(_ROOTS) + path


def _located(draw: Draw, path: str) -> str:
    return draw.choice(_HOSTS) + path


def _bare(draw: Draw, path: str) -> str:
    return path.lstrip("/")


CHANGES: list[Callable[[Draw, str], str]] = [
    *[_some_letters, _encoded_again, _other_case, _slash, _slash, _tail, _tail, _below, _below, _located, _bare]
]


def written(seed: int, count: int, mount: str = "") -> Iterator[Written]:
    """Draw so many requests, the known ones first; every second one is below the `mount` of the application."""
    draw = random.Random(seed)
    for path in PATHS:
        yield from (Written(method, path) for method in ("GET", "POST"))
        yield Written("OPTIONS", path, PREFLIGHT)
        yield Written("POST", f"http://h{path}")
        for field in _MOUNTS:
            yield from (Written(method, f"/a{path}", f"{field}: /a\r\n") for method in ("GET", "POST"))
    for _ in range(count - 8 * len(PATHS)):
        target = draw.choice([*PATHS, "/items/a%2fb"])
        for change in draw.choices(CHANGES, k=draw.choice([0, 1, 1, 2, 2, 3, 4])):
            target = change(draw, target)
        target = draw.choice([mount, ""]) + target
        yield Written(draw.choice(METHODS), target, _fields(draw, target))


def _fields(draw: Draw, target: str) -> str:
    kind = draw.choices(["none", "preflight", "mount", "other"], [3, 3, 3, 1])[0]
    if kind == "mount":  # a prefix that a server may cut off, wherever it ends
        return f"{draw.choice(_MOUNTS)}: {target[: draw.randrange(len(target) + 1)]}\r\n"
    if kind == "other":
        return f"{draw.choice(_FIELDS)}: {draw.choice([*_ROOTS, *PATHS, 'POST'])}\r\n"
    return draw.choice([PREFLIGHT, *_ALMOST]) if kind == "preflight" else ""
