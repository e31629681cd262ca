r"""Which texts a router may read in the target of a request: one function, which the matcher asks for every face.

A target comes as a path, or as a whole URL. It may have `//`, `..` or `\`, or be encoded again, or begin with where the
application is mounted. A rule applies if one of these readings matches. A framework, a proxy or the application may
read a target in any of these ways, and a client must not get around a rule by writing it differently. A reading too
many costs a client a token at a path that the application answers with 404.
"""

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlparse, urlsplit

DECODINGS = 3
"""How often a path is decoded again. Nobody decodes a path four times."""

_dots = re.compile(r"/\.\.?(?:/|$)").search
_slashes = re.compile(r"/{2,}").sub


def is_odd(path: str) -> bool:
    """Whether a path has other readings than itself."""
    return (
        path[:1] != "/"
        or "//" in path
        or "%" in path
        or "\\" in path
        or path[-1:] == "\n"
        or ("/." in path and _dots(path) is not None)
    )


def readings(path: str, root: str = "") -> list[str]:
    """Return the readings of a path, itself first, each once.

    With a `root` there are those without it, wherever it stands: frameworks find one route by both. A server may have
    cut it off, so there is the path with it too.
    """
    found = _spellings(path)
    if root:
        if not path.startswith(root):
            found |= _spellings(f"{root.rstrip('/')}/{path.lstrip('/')}")
        for below in _below(path, root):
            found |= _spellings(below)
        found |= dict.fromkeys([below for text in found for below in _below(text, root)])
    return list(found)


def _spellings(path: str) -> dict[str, None]:
    """Return the readings of a path that is below nothing, as the keys of a dict: they have an order."""
    found = {path: None}
    if is_odd(path):
        for text in _decoded(path):
            plain = text.replace("\\", "/").removesuffix("\n")  # "$" of a route matches before a newline too
            found |= dict.fromkeys((text, *_located(text)))
            for each in dict.fromkeys((plain, *_located(plain))):
                single = _slashes("/", each)
                found |= dict.fromkeys((single, _resolved(single), _slashes("/", _resolved(each))))
    return found


def _below(text: str, root: str) -> list[str]:
    """Return what follows the root: Litestar looks for it anywhere, others at the start, and not all to a slash."""
    return [text.partition(each)[2] for each in dict.fromkeys((root, root.rstrip("/"))) if each and each in text]


def _located(text: str) -> Iterable[str]:
    """Return the paths within a target that is no path, such as "http://host/path": with and without parameters."""
    if text[:1] == "/" and text[1:2] != "/":
        return ()
    try:
        return urlsplit(text).path, urlparse(text).path
    except ValueError:  # as whoever reads it so
        return ()


def _decoded(path: str) -> list[str]:
    found = [path]
    while len(found) <= DECODINGS and (text := unquote(found[-1])) != found[-1]:
        found.append(text)
    return found


def _resolved(path: str) -> str:
    """Return the path without "." and ".." segments."""
    kept: list[str] = []
    for segment in path.lstrip("/").split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)
